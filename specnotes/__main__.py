"""The command line: `python -m specnotes generate | measure`.

Models and NumPy are imported inside the commands, so that --help is quick and --threads acts in time.
"""

import argparse
import json
import os
import sys

from specnotes import __version__

DRAFTERS = ("model", "medusa", "eagle")
ALL = "all"  # of them, for measure
GAMMA, LEVELS, DRAWN_LEVELS, NODES = 3, 6, 4, 32
MOST = 8  # gamma, in measure
COLOURS = {"accepted": "\033[32m", "recovered": "\033[33;4m", "bonus": "\033[34;1m"}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says what is wrong in one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")


def build_parser():
    parser = Parser(prog="python -m specnotes", description="Speculative decoding on a small GPT-2 pair.")
    parser.add_argument("--version", action="version", version=f"specnotes {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="{generate,measure}", parser_class=Parser)
    generate = commands.add_parser("generate", help="decode a text and say how each token came about")
    generate.add_argument("prompt", help="the text to continue")
    generate.add_argument("--max-new-tokens", type=int, default=100, metavar="N", help="default 100")
    generate.add_argument("--gamma", type=int, metavar="N", help=f"drafted tokens in a row, 0 is plain decode; default {GAMMA}, with --tree {LEVELS} at temperature 0 and {DRAWN_LEVELS} above")
    generate.add_argument("--temperature", type=float, default=1.0, metavar="T", help="0 is greedy; default 1")
    generate.add_argument("--top-k", type=int, metavar="K", help="keep the K likeliest tokens; default: all")
    generate.add_argument("--top-p", type=float, metavar="P", help="keep the likeliest tokens that reach P together; default: all")
    generate.add_argument("--seed", type=int, metavar="N", help="repeat a run; default: fresh, and reported")
    _add_drafter(generate)
    _add_pair(generate)
    measure = commands.add_parser("measure", help="time plain and speculative decode, predicted next to measured")
    measure.add_argument("--gamma", type=int, metavar="N", help="measure 0..N drafted tokens; default 8")
    measure.add_argument("--temperature", type=float, default=1.0, metavar="T", help="0 is greedy; default 1")
    measure.add_argument("--tokens", type=int, default=300, metavar="N", help="tokens per run; default 300")
    measure.add_argument("--repeats", type=int, default=5, metavar="N", help="times each prompt is run; default 5")
    measure.add_argument("--threads", type=int, default=1, metavar="N", help="BLAS threads; default 1")
    measure.add_argument("--seed", type=int, default=0, metavar="N", help="repeat a run's tokens; default 0")
    _add_drafter(measure, ALL)
    _add_pair(measure)
    return parser


def _add_drafter(command, *more):
    usual = "what drafts: the draft model, or heads on the target's features; default model"
    help = usual + "; all: compare the three, chains and trees" if more else usual
    command.add_argument("--drafter", choices=(*DRAFTERS, *more), default="model", help=help)
    command.add_argument("--tree", action="store_true", help="draft a tree: at temperature 0 of the likeliest tokens, above of drawn ones")
    command.add_argument("--nodes", type=int, default=NODES, metavar="N", help=f"drafted tokens of a tree, at most; Medusa at temperature 0 has trees of 4, 8, 16 and 32; default {NODES}")
    command.add_argument("--heads", metavar="FOLDER", help="with medusa and eagle: a folder that python -m specnotes.train.heads wrote; default: the embedded heads")


def _add_pair(command):
    command.add_argument("--target", metavar="FOLDER", help="a GPT-2 folder, or a name on the hub (extra: hub); default: the embedded target")
    command.add_argument("--draft", metavar="FOLDER", help="the same for the draft; default: the embedded draft")
    command.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="precision of the models; default float32")
    command.add_argument("--json", action="store_true", help="print numbers as JSON")


def drafting(args, pair, gamma):
    """The measure.Way that was asked for, with gamma drafted tokens in a row."""
    from specnotes.heads import load_heads
    from specnotes.measure import Way, eagle_way, medusa_way

    if args.drafter == "model":
        for name, usual in (("tree", False), ("nodes", NODES), ("heads", None)):
            if getattr(args, name) != usual:
                raise ValueError(f"{name}: {getattr(args, name)!r} with the drafter 'model', expected it with --drafter medusa or eagle")
        return Way(gamma)
    if args.nodes != NODES and not args.tree:
        raise ValueError(f"nodes: {args.nodes}, expected them with --tree")
    heads, nodes = load_heads(args.drafter, args.heads, args.target, args.dtype), args.nodes if args.tree else None
    if args.drafter == "eagle":
        way = eagle_way(heads, args.temperature, gamma, nodes)
    else:
        if args.gamma is not None and args.gamma > len(heads):
            raise ValueError(f"gamma: {args.gamma}, expected at most {len(heads)}, one level for each Medusa head")
        way = medusa_way(heads, args.temperature, nodes)._replace(gamma=min(gamma, len(heads)))
    way.drafter()  # so that what is wrong is said before anything runs
    return way


def run_generate(args):
    import numpy as np

    from specnotes.decode import generate, near_ties
    from specnotes.dice import RandomDice
    from specnotes.drafters import ModelDrafter
    from specnotes.pair import load_pair

    if not args.prompt:
        raise ValueError("prompt: empty, expected a text to continue")
    if any("\ud800" <= letter <= "\udfff" for letter in args.prompt):
        raise ValueError("prompt: bytes that are no UTF-8 text, expected text in the terminal's encoding")
    if args.seed is not None and args.seed < 0:
        raise ValueError(f"seed: {args.seed}, expected an integer >= 0")
    pair = load_pair(args.target, args.draft, args.dtype)
    usual = GAMMA if not args.tree else LEVELS if args.temperature == 0 else DRAWN_LEVELS
    way = drafting(args, pair, usual if args.gamma is None else args.gamma)
    prompt = pair.tokenizer.encode(args.prompt).ids
    trace = generate(
        pair.target, prompt, way.drafter() if way.drafter else ModelDrafter(pair.draft), gamma=way.gamma, max_new_tokens=args.max_new_tokens,
        temperature=args.temperature, top_k=args.top_k, top_p=args.top_p, rule=way.rule,
        dice=None if args.seed is None else RandomDice(np.random.default_rng(args.seed)),
    )
    ties = near_ties(pair.target, prompt, trace.tokens) if args.temperature == 0 else []
    # Greedy rows are one-hot: the dice, and so their seed, change nothing.
    seed = None if args.temperature == 0 else args.seed if trace.seed is None else trace.seed
    if args.json:
        print(json.dumps(_generate_record(pair, trace, ties, seed)))
    else:
        _print_generated(args.prompt, pair, trace, ties, seed)


def _generate_record(pair, trace, ties, seed):
    return {
        "text": pair.tokenizer.decode(list(trace.tokens)),
        "tokens": list(trace.tokens), "kinds": list(trace.kinds), "tokens_per_pass": trace.tokens_per_pass,
        "passes": len(trace.rounds), "alpha": trace.alpha, "acceptance": trace.acceptance, "finish": trace.finish,
        "seed": seed, "near_ties": [{"position": position, "gap": gap} for position, gap in ties],
    }


def _print_generated(prompt, pair, trace, ties, seed):
    counts = {kind: trace.kinds.count(kind) for kind in COLOURS}
    if sys.stdout.isatty():
        from specnotes.trace import pieces

        marked = zip(pieces(pair.tokenizer, trace.tokens), trace.kinds)
        print(prompt + "".join(f"{COLOURS[kind]}{piece}\033[0m" for piece, kind in marked))
        legend = {kind: f"{COLOURS[kind]}{kind}\033[0m" for kind in COLOURS}
    else:
        print(prompt + pair.tokenizer.decode(list(trace.tokens)))
        print(f"\nkinds (a accepted, r recovered, b bonus): {''.join(kind[0] for kind in trace.kinds)}")
        legend = {kind: kind for kind in COLOURS}
    print("\n" + ", ".join(f"{counts[kind]} {legend[kind]}" for kind in COLOURS), end=" ")
    rate = "no pass" if trace.tokens_per_pass is None else f"{trace.tokens_per_pass:.2f} tokens per pass"
    print(f"({len(trace.tokens)} tokens in {len(trace.rounds)} target passes: {rate})")
    if trace.alpha is not None:
        print(f"alpha = {trace.alpha:.3f} (mean of sum min(p, q) over the positions examined)")
    if trace.finish == "context":
        print(f"stopped early: the context of {pair.target.max_length} tokens is full")
    for position, gap in ties:
        print(f"near tie at new token {position}: the two best logits differ by {gap:.1e}; --dtype float64 decides it")
    if seed is not None:
        print(f"seed {seed}")


def run_measure(args):
    for name, least in (("gamma", 1), ("tokens", 2), ("repeats", 1), ("threads", 1), ("seed", 0)):
        if getattr(args, name) is not None and getattr(args, name) < least:
            raise ValueError(f"{name}: {getattr(args, name)}, expected an integer >= {least}")
    if args.gamma is not None and args.gamma > MOST:
        raise ValueError(f"gamma: {args.gamma}, expected at most {MOST} (the cost curve has {MOST + 1} positions)")
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(args.threads)
    from specnotes.pair import load_pair

    pair = load_pair(args.target, args.draft, args.dtype)
    names = ("temperature", "tokens", "repeats", "threads", "seed")
    options = {"progress": _progress, **{name: getattr(args, name) for name in names}}
    record = (_compared if args.drafter == ALL else _measured)(args, pair, options)
    table = _compared_table if args.drafter == ALL else _table
    print(json.dumps(record, indent=1) if args.json else table(record), flush=True)
    settings = record["settings"]
    if settings["runs"] < settings["runs_wanted"]:
        print(f"\nstopped after {settings['runs']} of {settings['runs_wanted']} groups of runs; these are reported", file=sys.stderr)
        sys.exit(130)


def _measured(args, pair, options):
    """The record of one drafter at gamma 0, 1, ..."""
    from specnotes.measure import measure

    most = MOST if args.gamma is None else args.gamma
    way = drafting(args, pair, most)
    record = measure(pair, gammas=range(way.gamma + 1), drafter=way.drafter, rule=way.rule, **options)
    record["settings"] |= {"drafter": args.drafter, "tree": args.tree, "nodes": args.nodes if args.tree else None}
    return record


def _compared(args, pair, options):
    """The record of all drafters, with the lengths and trees the course compares."""
    from specnotes.heads import KINDS, load_heads
    from specnotes.measure import compare, usual_ways

    for name, usual in (("gamma", None), ("tree", False), ("nodes", NODES), ("heads", None)):
        if getattr(args, name) != usual:
            raise ValueError(f"{name}: {getattr(args, name)!r} beside the drafter 'all', which has lengths and trees of its own")
    medusa, eagle = (load_heads(kind, None, args.target, args.dtype) for kind in KINDS)
    record = compare(pair, usual_ways(medusa, eagle, args.temperature), **options)
    record["settings"]["drafter"] = ALL
    return record


def _progress(done, total):
    """A bar on a terminal; elsewhere silence."""
    if sys.stderr.isatty():
        bar = "#" * (30 * done // total)
        print(f"\r[{bar:30}] {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _heading(record):
    """Two lines: what it was measured on, and how."""
    machine, settings = record["machine"], record["settings"]
    return [
        f"{machine['processor']}, {machine['threads']} thread(s), {machine['blas']}, "
        f"reads {machine['bandwidth_bytes_per_s'] / 1e9:.1f} GB/s",
        f"temperature {settings['temperature']}, {settings['runs']} groups of runs over {settings['prompts']} prompts, "
        f"{settings['tokens']} tokens each",
    ]


def _warnings(record):
    """What a reader of the times should know."""
    machine, settings = record["machine"], record["settings"]
    lines = []
    if settings["cut_by_context"]:
        lines.append(f"the context ended {settings['cut_by_context']} plain runs early: they have fewer tokens")
    if machine["cpu_share"] < 0.95:
        lines.append(f"the machine was busy: only {machine['cpu_share']:.0%} of a core was ours, so distrust these times")
    for name, value in machine.get("kernels_chosen_by", {}).items():
        lines.append(f"{name}={value} is set: NumPy computes with kernels not meant for this processor; unset it to measure")
    return lines


def _costs(record):
    return "t(k)/t(1) for k positions  " + "  ".join(f"{k}: {cost:.2f}" for k, cost in record["verify_cost"].items())


def _table(record):
    settings = record["settings"]
    lines = [
        *_heading(record),
        f"drafter {settings.get('drafter', 'model')}{' with trees of at most %d nodes' % settings['nodes'] if settings.get('tree') else ''}, "
        f"alpha {_number(record['alpha'], 3)}, c {_number(record['c'], 3)}, {_costs(record)}",
        "",
        "              tokens per pass    speed-up                predicted       measured/predicted  ms per pass",
        "gamma  nodes  measured  formula  measured (95 %)         flat  measured  tokens  time        draft  target  rule",
    ]
    lines += [_table_row(row) for row in record["rows"]]
    lines += ["", "gamma  acceptance by position, given that it was examined"]
    lines += [f"{row['gamma']:5}  " + "  ".join(f"{a:.2f}" for a in row["acceptance_by_position"] if a is not None) for row in record["rows"][1:]]
    lines += ["", "predicted: from alpha and c, with free positions (flat) and with the measured t(gamma + 1) / t(1)"]
    if settings.get("tree"):
        lines.append("a tree has no single alpha, so nothing is predicted for it; gamma counts its levels")
    return "\n".join(lines + _warnings(record))


def _compared_table(record):
    lines = [
        *_heading(record),
        _costs(record),
        "",
        "                         drafted  tokens    speed-up                if positions  plain passes spent on",
        "drafter                  nodes    per pass  measured (95 %)         were free     draft  verify  rule",
    ]
    for row in record["rows"]:
        spent = row["steps"]
        lines.append(
            f"{row['name']:23}  {row['nodes_per_pass']:5.1f}    {row['tokens_per_pass']:8.2f}  {_spread(row):22}  "
            f"{row['speedup_free']:8.2f}      {spent['draft']:5.2f}  {spent['target']:6.2f}  {spent['rule']:4.2f}"
        )
    return "\n".join([*lines, "", "speed-up: over plain decode next to it", *_warnings(record)])


def _spread(row):
    low, high = row["speedup_low"], row["speedup_high"]
    return f"{row['speedup']:.2f} ({'one run' if low is None else f'{low:.2f} to {high:.2f}'})"


def _number(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def _table_row(row):
    draft, target, rule = (1e3 * row["seconds_per_pass"][phase] for phase in ("draft", "target", "rule"))
    return (
        f"{row['gamma']:5}  {row['nodes_per_pass']:5.1f}  {row['tokens_per_pass']:8.2f}  {_number(row['tokens_formula']):>7}  {_spread(row):22}  "
        f"{_number(row['predicted_flat']):>4}  {_number(row['predicted_measured']):>8}  "
        f"{_number(row['token_part']):>6}  {_number(row['cost_part']):>4}"
        f"        {draft:5.2f}  {target:6.2f}  {rule:4.2f}"
    )


def main(arguments=None):
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: what is written goes nowhere
            setattr(sys, name, open(os.devnull, "w"))
    parser = build_parser()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a letter the terminal lacks must not lose the text
    args = parser.parse_args(arguments)
    try:
        {"generate": run_generate, "measure": run_measure}[args.command](args)
        sys.stdout.flush()
    except ValueError as error:
        parser.error(" ".join(str(error).split()))
    except KeyboardInterrupt:
        parser.exit(130, "\nstopped\n")
    except BrokenPipeError:
        # The reader of a pipe has seen enough.
        _silence()
        sys.exit(141)
    except OSError as error:
        _silence()
        parser.error(str(error))


def _silence():
    """Send the rest of the output nowhere, so that the interpreter does not complain when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
