"""`python -m specnotes.train.heads`: Medusa heads and an EAGLE head for a finished target; run it again to resume.

The target is frozen. Both learn from its hidden states after the last LayerNorm, on three kinds of text in equal
parts: the corpus, text the target drew at temperature 1, and text it wrote almost greedily. What is reported is
measured on text of the last two kinds that it wrote after prompts from the held-out works.
"""

import argparse
import hashlib
import json
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional as F

from specnotes.checkpoint import read_model, read_tokenizer
from specnotes.decode import generate
from specnotes.dice import RandomDice
from specnotes.drafters import EagleDrafter, MedusaDrafter
from specnotes.heads import load_heads
from specnotes.measure import MORE_PROMPTS, PROMPTS
from specnotes.rules import greedy_rule, token_rule
from specnotes.train import corpus, export, stages, tokens
from specnotes.train.head_models import Eagle, Medusa, eagle_loss, features_of, medusa_loss, overlaps
from specnotes.train.loop import Recipe, add_run_options, say, train
from specnotes.train.model import GPT2, Shape
from specnotes.tree import best_tree, expected_tokens

ASSETS = Path(__file__).parent.parent / "assets"
HEADS, RANKS, TREE_NODES = 4, 16, (4, 8, 16, 32)
AHEAD, LATER, FEATURE_WEIGHT, OVERLAP_WEIGHT = 4, 0.9, 0.2, 2.0
SECOND_PART = 0.5  # of the steps of EAGLE: there it learns from its own guesses too, and from the chance of rejection
TRAINED_AHEAD = 3
CORPUS_TOKENS, SAMPLED_TOKENS, COLD_TOKENS, COLD = 917_504, 917_504, 262_144, 1e-3
HELD_WINDOWS = 32
MEDUSA_STEPS, MEDUSA_ROWS, MEDUSA_RATE = 800, 9, 2e-3
EAGLE_STEPS, EAGLE_ROWS, EAGLE_RATE = 5000, 6, 3e-3
KINDS = ("medusa", "eagle", "medusa-tied", "eagle-unshifted", "eagle-unfed")  # the last three only to compare


def main(argv=None):
    args = parse(argv)
    torch.set_num_threads(args.threads)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    target, tokenizer = read_target(args.target)
    works = corpus.read_works(corpus.fetch(args.corpus or out))
    texts, held_texts = corpus.split(works)
    stream = tokens.encode(tokenizer, texts)
    plan = planned(args, out)
    held_out = tokens.encode(tokenizer, held_texts)
    texts = write_texts(target, {"": stream, "held-": held_out}, plan, out)
    data = {name: (ids, feature_rows(target, ids, out / f"{name}-features.npy")) for name, ids in texts.items()}
    report = {"seed": plan["seed"], "data": data_report(texts, works), "target": target_report(target, args.target, data)}
    models = {}
    report["software"] = {"torch": torch.__version__, "threads": args.threads}
    for kind in KINDS:
        models[kind], report[kind] = train_head(kind, target, data, plan, out, compiled=not args.no_compile)
        if {"medusa", "eagle"} <= models.keys():
            write_heads(out / "heads", Path(args.target), models, report)
            say(f"the heads are in {out / 'heads'}: {report['decoded']}")


def parse(argv):
    parser = argparse.ArgumentParser(prog="python -m specnotes.train.heads", description=__doc__)
    parser.add_argument("--target", default=str(ASSETS / "target"), help="its folder; default: the embedded target")
    add_run_options(parser, "heads")
    parser.add_argument("--medusa-steps", type=int, default=MEDUSA_STEPS, help=f"default {MEDUSA_STEPS}, as shipped")
    parser.add_argument("--eagle-steps", type=int, default=EAGLE_STEPS, help=f"default {EAGLE_STEPS}, as shipped")
    parser.add_argument("--corpus-tokens", type=int, default=CORPUS_TOKENS, help=f"read; default {CORPUS_TOKENS}")
    parser.add_argument("--sampled-tokens", type=int, default=SAMPLED_TOKENS, help=f"drawn; default {SAMPLED_TOKENS}")
    parser.add_argument("--cold-tokens", type=int, default=COLD_TOKENS, help=f"almost greedy; default {COLD_TOKENS}")
    return parser.parse_args(argv)


def planned(args, out):
    """The sizes of the run, kept in plan.json so that a resumed run keeps them."""
    path = out / "plan.json"
    if not path.exists():
        names = ("medusa_steps", "eagle_steps", "corpus_tokens", "sampled_tokens", "cold_tokens", "seed")
        path.write_text(json.dumps({name: getattr(args, name) for name in names}))
    return json.loads(path.read_text())


def read_target(folder):
    """(the target in torch, frozen; its tokenizer) from a folder that `export` wrote.

    Raises ValueError where a file is missing.
    """
    folder = Path(folder)
    missing = [name for name in ("config.json", "model.safetensors", "tokenizer.json") if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"target: {folder} lacks {', '.join(missing)}, expected the folder of a finished target")
    config = json.loads((folder / "config.json").read_text())
    shape = Shape(config["n_layer"], config["n_embd"], config["n_head"], config["vocab_size"], config["n_positions"])
    model = GPT2(shape)
    model.load_state_dict({name: weight.float() for name, weight in load_file(folder / "model.safetensors").items()})
    return model.eval().requires_grad_(False), Tokenizer.from_file(str(folder / "tokenizer.json"))


def write_texts(target, streams, plan, out):
    """{name: ids [windows, context]}: windows of the corpus, and text the target wrote after prompts from it.

    streams: {"": the training corpus, "held-": the held-out works}; text after the latter is only measured on.
    """
    context = target.shape.context
    found = {"corpus": tokens.windows(streams[""], context)[: plan["corpus_tokens"] // context, :-1]}
    for name, model in {"cold": cooled(target, COLD), "sampled": target}.items():
        for part, stream in streams.items():
            folder, count = out / (part + name), HELD_WINDOWS * context if part else plan[f"{name}_tokens"]
            folder.mkdir(exist_ok=True)
            ids = stages.sampled_stream(model, stream, count, folder, plan["seed"])
            found[part + name] = ids.reshape(-1, context)[: count // context]
    return found


def cooled(target, temperature):
    """A copy of the target whose logits are divided by `temperature`."""
    copy = deepcopy(target)
    for weight in copy.transformer["ln_f"].parameters():
        weight.div_(temperature)
    return copy


def feature_rows(target, ids, path):
    """The target's features [windows, n, d] of ids [windows, n], see `stages.rows_on_disk`."""
    return stages.rows_on_disk(partial(features_of, target), ids, path)


def train_head(kind, target, data, plan, out, compiled=True):
    """(the trained head, rounded to half; its part of the report). Resumes from the checkpoint in `out`."""
    make, rows, rate = (_medusa, MEDUSA_ROWS, MEDUSA_RATE) if "medusa" in kind else (_eagle, EAGLE_ROWS, EAGLE_RATE)
    steps = plan["medusa_steps" if "medusa" in kind else "eagle_steps"]
    recipe = Recipe(steps, rows, rate, warmup=min(50, steps // 10))
    model, loss, evaluate, describe = make(kind, target, data, recipe, plan["seed"], compiled)

    def loss_at(step):
        ids, features = batch(data, ("corpus", "sampled", "cold"), rows // 3, step, plan["seed"])
        return loss(step, ids, features)

    say(f"{kind}:")
    history, seconds = train(model, loss_at, recipe, out / f"{kind}.pt", evaluate, every=50, say=say)
    export.round_to_half(model)
    model.eval()
    parameters = sum(weight.numel() for weight in model.parameters())
    trained = {"parameters": parameters, "recipe": asdict(recipe), "seconds": round(seconds)}
    return model, {**trained, **describe(), "history": history}


def batch(data, names, rows, step, seed):
    """(ids [m, n], features [m, n, d]): `rows` windows of each text, a function of the step alone."""
    chosen = {name: tokens.shuffled(len(data[name][0]), min(rows, len(data[name][0])), step, seed) for name in names}
    return tuple(_tensor([data[name][part][places] for name, places in chosen.items()]) for part in (0, 1))


def _tensor(parts):
    found = torch.from_numpy(np.concatenate(parts))
    return found.float() if found.is_floating_point() else found


def _first(data, name, rows):
    ids, features = data[name]
    return _tensor([ids[:rows]]), _tensor([features[:rows]])


def log_law(target, features):
    """The target's log-probabilities [..., V] from its features [..., d]."""
    return F.linear(features, target.transformer["wte"].weight).log_softmax(-1)


def _medusa(kind, target, data, recipe, seed, compiled):
    model = Medusa(target.transformer["wte"].weight, HEADS, tied=kind.endswith("tied"))
    compiled_loss = torch.compile(medusa_loss, dynamic=False) if compiled else medusa_loss
    loss = lambda step, ids, features: compiled_loss(model, features, log_law(target, features).exp())
    top1 = lambda: enumerate(accuracy(model, data, "held-cold", 16), start=1)
    return model, loss, lambda: {f"top1_head{k}": row[0] for k, row in top1()}, lambda: {
        "heads": HEADS, "unembedding": "the target's" if model.unembed is None else "own",
        "accuracy": {name: accuracy(model, data, f"held-{name}") for name in ("cold", "sampled")},
    }


@torch.no_grad()
def accuracy(model, data, name, rows=HELD_WINDOWS):
    """How often the r-th choice of head k is the token: rows [heads][ranks] over windows of a text."""
    model.eval()
    ids, features = _first(data, name, rows)
    found = []
    for ahead, logits in enumerate(model(features), start=1):
        choices = logits[:, : -1 - ahead].topk(min(RANKS, logits.shape[-1])).indices  # [rows, n, ranks]
        hits = choices == ids[:, 1 + ahead :, None]
        found.append(hits.double().mean((0, 1)).tolist())
    return found


def _eagle(kind, target, data, recipe, seed, compiled):
    model = Eagle(target, seed, shifted=not kind.endswith("unshifted"), fed=not kind.endswith("unfed"))
    compiled_loss = torch.compile(eagle_loss, dynamic=False) if compiled else eagle_loss

    def loss(step, ids, features):
        late = step >= SECOND_PART * recipe.steps
        settings = TRAINED_AHEAD if late else 1, LATER, FEATURE_WEIGHT, OVERLAP_WEIGHT if late else 0.0
        return compiled_loss(model, features, ids, log_law(target, features), settings)

    def acceptance(name, rows):
        model.eval()
        ids, features = _first(data, name, rows)
        return overlaps(model, features, ids, log_law(target, features), AHEAD)

    evaluate = lambda: {f"acceptance_{j}": a for j, a in enumerate(acceptance("held-sampled", 16), start=1)}
    return model, loss, evaluate, lambda: {
        "shifted": model.shifted, "fed": model.fed, "acceptance_T1": acceptance("held-sampled", HELD_WINDOWS),
        "acceptance_T1_on_greedy_text": acceptance("held-cold", HELD_WINDOWS),
    }


def data_report(texts, works):
    return {
        "package": corpus.PACKAGE,
        "sha256": corpus.SHA256,
        "works": len(works),
        "held_out": list(corpus.HELD_OUT),
        "texts": {name: int(ids.size) for name, ids in texts.items()},
        "cold_temperature": COLD,
    }


def target_report(target, folder, data):
    """What the heads belong to, and how hard its text is to guess: mean entropy, mean chance of the likeliest token."""
    found = {"sha256": weights_digest(folder)}
    for name in ("held-sampled", "held-cold"):
        log_p = log_law(target, _first(data, name, HELD_WINDOWS)[1])
        found[name] = {"entropy_nats": -(log_p.exp() * log_p).sum(-1).mean().item(),
                       "likeliest": log_p.exp().amax(-1).mean().item()}
    return found


def weights_digest(folder):
    return hashlib.sha256((Path(folder) / "model.safetensors").read_bytes()).hexdigest()


def trees(acceptance):
    """{nodes: {parents, expected tokens per pass}} of the best trees, by head accuracies [heads][ranks]."""
    found = {}
    for nodes in TREE_NODES:
        parents = best_tree(acceptance, nodes)
        found[str(nodes)] = {"parents": parents, "expected_tokens": expected_tokens(parents, acceptance)}
    return found


def write_heads(folder, target, models, report):
    """The two heads that ship, each with its config; one report of everything; checksums of all."""
    report["medusa"]["trees"] = trees(report["medusa"]["accuracy"]["cold"])
    best = {nodes: tree["parents"] for nodes, tree in report["medusa"]["trees"].items()}
    configs = {
        "medusa": {"heads": HEADS, "accuracy": report["medusa"]["accuracy"]["cold"], "trees": best},
        "eagle": {"heads": models["eagle"].shape.heads},
    }
    for kind, settings in configs.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        config = {"model_type": f"specnotes-{kind}", **settings, "target_sha256": report["target"]["sha256"]}
        export.write_text(folder / kind / "config.json", json.dumps(config) + "\n")
        export.write_weights(models[kind], folder / kind)
    (folder / "SHA256SUMS").unlink(missing_ok=True)  # those of an earlier call would not fit
    report["decoded"] = decoded(target, folder)
    export.write_report(report, folder)
    export.write_checksums(folder)


def decoded(target_folder, folder, tokens=100):
    """What the finished heads do through the decode loop, on prompts from the held-out works, `tokens` tokens each.

    Tokens per pass at temperature 0, and sum min(p, q) by step of EAGLE's chains at 1.
    """
    target, tokenizer = read_model(target_folder, "float32"), read_tokenizer(target_folder)
    medusa, eagle = (load_heads(kind, folder / kind, target_folder) for kind in ("medusa", "eagle"))
    prompts = [tokenizer.encode(text).ids[: target.max_length // 2] for text in PROMPTS + MORE_PROMPTS]
    greedy = {
        "medusa_tree": (MedusaDrafter(medusa, nodes=32), HEADS),
        "medusa_chain": (MedusaDrafter(medusa, range(-1, HEADS - 1)), HEADS),
        "eagle_tree": (EagleDrafter(eagle, nodes=32), 6),
        "eagle_chain": (EagleDrafter(eagle), AHEAD),
    }
    found = {"prompts": len(prompts), "tokens": tokens, "nodes": 32}
    for name, (drafter, gamma) in greedy.items():
        rounds = _rounds(target, prompts, drafter, gamma, tokens, 0.0)
        found[f"{name}_tokens_per_pass_T0"] = sum(len(round.tokens) for round in rounds) / len(rounds)
    betas = [round.betas for round in _rounds(target, prompts, EagleDrafter(eagle), AHEAD, tokens, 1.0)]
    reached = [[row[step] for row in betas if len(row) > step] for step in range(AHEAD)]
    found["eagle_acceptance_by_step_T1"] = [float(np.mean(values)) if values else None for values in reached]
    return found


def _rounds(target, prompts, drafter, gamma, tokens, temperature):
    """All rounds of one text after each prompt, text i with seed i."""
    settings = {"gamma": gamma, "max_new_tokens": tokens, "temperature": temperature}
    settings["rule"] = token_rule if temperature else greedy_rule
    found = []
    for seed, prompt in enumerate(prompts):
        found += generate(target, prompt, drafter, dice=RandomDice(np.random.default_rng(seed)), **settings).rounds
    return found


if __name__ == "__main__":
    main()
