"""The two stages: a target that learns the text, a draft that learns the target."""

from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from tqdm import tqdm

from specnotes.train.loop import train
from specnotes.train.model import GPT2, sample
from specnotes.train.tokens import batch, shuffled, windows

SAMPLED_ROWS, SAMPLED_PROMPT = 128, 16
OVERLAP_SHARE, OVERLAP_WEIGHT = 0.5, 3.0


def logits_of(model, ids):
    """Logits [rows, n, V] in float32, the products in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        return model(ids).float()


def text_loss(model, ids):
    """Mean cross-entropy in nats of each next token in windows [rows, n + 1]."""
    return F.cross_entropy(logits_of(model, ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def distil_loss(draft, ids, log_p, overlap_weight):
    """KL(p || q) in nats, plus overlap_weight * (1 - sum of min(p, q)), the mean over ids [rows, n].

    log_p: log-probabilities of the target [rows, n, V]. The second term is the rejection probability itself.
    Source: Zhou et al. 2023 (DistillSpec), section 4.
    """
    log_q = logits_of(draft, ids).log_softmax(-1)
    p = log_p.exp()
    divergence = (p * (log_p - log_q)).sum(-1).mean()
    rejection = 1 - torch.minimum(p, log_q.exp()).sum(-1).mean()
    return divergence + overlap_weight * rejection


@torch.no_grad()
def mean_text_loss(model, held_out, rows=8):
    """Held-out cross-entropy in nats over windows [n, size + 1]."""
    model.eval()
    parts = torch.from_numpy(held_out).split(rows)
    return sum(text_loss(model, part).item() * len(part) for part in parts) / len(held_out)


@torch.no_grad()
def mean_overlap(draft, target, held_out, rows=8):
    """Mean sum of min(p, q) at temperature 1 over windows [n, size + 1]: alpha where every position counts."""
    draft.eval()
    total = 0.0
    for part in torch.from_numpy(held_out).split(rows):
        p, q = (logits_of(model, part[:, :-1]).softmax(-1) for model in (target, draft))
        total += torch.minimum(p, q).sum(-1).mean().item() * len(part)
    return total / len(held_out)


def train_target(shape, recipe, stream, held_out, out, seed, compiled=True, **options):
    """(target, history, seconds): a GPT-2 trained on the stream."""
    model = GPT2(shape, seed)
    loss = torch.compile(text_loss, dynamic=False) if compiled else text_loss
    few = windows(held_out, shape.context)[:16]

    def loss_at(step):
        return loss(model, torch.from_numpy(batch(stream, shape.context, recipe.rows, step, seed)))

    def evaluate():
        return {"held_out_loss": mean_text_loss(model, few)}

    return model, *train(model, loss_at, recipe, Path(out) / "target.pt", evaluate, **options)


def sampled_stream(target, stream, tokens, out, seed):
    """A stream of text drawn from the target at temperature 1, kept in `out` so that a resumed run reuses it.

    The weights are rounded to bfloat16 for speed: the text only has to be like the target's.
    """
    path, context = Path(out) / "sampled.npy", target.shape.context
    if path.exists():
        return np.load(path)
    rng, generator = np.random.default_rng([seed, 1]), torch.Generator().manual_seed(seed + 1)
    quick, parts = deepcopy(target).bfloat16(), []
    for _ in tqdm(range(-(-tokens // (SAMPLED_ROWS * context))), desc="sampling", disable=None):
        starts = rng.integers(len(stream) - SAMPLED_PROMPT, size=SAMPLED_ROWS)
        prompts = torch.from_numpy(stream[starts[:, None] + np.arange(SAMPLED_PROMPT)])
        parts.append(sample(quick, prompts, context, generator).numpy().ravel())
    fresh = path.with_suffix(".new.npy")
    np.save(fresh, np.concatenate(parts))
    fresh.replace(path)
    return np.load(path)


def target_rows(target, ids, path, rows=8):
    """The target's log-probabilities [windows, n, V] for ids [windows, n], see `rows_on_disk`."""
    return rows_on_disk(lambda part: logits_of(target, part).log_softmax(-1), ids, path, rows)


@torch.no_grad()
def rows_on_disk(compute, ids, path, rows=8):
    """compute(ids [rows, n]) -> [rows, n, width] for all ids [windows, n], float16 in a file that stays on disk.

    Computed once: every pass over a window would ask for the same rows again.
    """
    path = Path(path)
    if not path.exists():
        parts = tqdm(torch.from_numpy(ids).split(rows), desc=path.stem, disable=None)
        _write_rows((compute(part).half().numpy() for part in parts), len(ids), path)
    return np.load(path, mmap_mode="r")


def _write_rows(parts, count, path):
    fresh, found, begin = path.with_suffix(".new"), None, 0
    for part in parts:
        if found is None:
            found = np.lib.format.open_memmap(fresh, "w+", np.float16, (count, *part.shape[1:]))
        found[begin : begin + len(part)] = part
        begin += len(part)
    found.flush()
    fresh.replace(path)


def distil_draft(shape, recipe, target, stream, sampled, held_out, out, seed, compiled=True, **options):
    """(draft, history, seconds): half of each batch is corpus text, half text sampled from the target.

    The overlap term acts in the last OVERLAP_SHARE of the steps.
    """
    draft = GPT2(shape, seed + 2)
    target.eval().requires_grad_(False)
    loss = torch.compile(distil_loss, dynamic=False) if compiled else distil_loss
    few, half = windows(held_out, shape.context)[:16], recipe.rows // 2
    texts = {"corpus": windows(stream, shape.context)[:, :-1], "sampled": sampled.reshape(-1, shape.context)}
    rows = {name: target_rows(target, ids, Path(out) / f"{name}-rows.npy") for name, ids in texts.items()}

    def loss_at(step):
        chosen = {name: shuffled(len(ids), half, step, seed) for name, ids in texts.items()}
        ids = np.concatenate([texts[name][places] for name, places in chosen.items()])
        log_p = np.concatenate([rows[name][places] for name, places in chosen.items()])
        overlap_weight = OVERLAP_WEIGHT * float(step >= (1 - OVERLAP_SHARE) * recipe.steps)
        return loss(draft, torch.from_numpy(ids), torch.from_numpy(log_p).float(), overlap_weight)

    def evaluate():
        return {"held_out_alpha": mean_overlap(draft, target, few)}

    return draft, *train(draft, loss_at, recipe, Path(out) / "draft.pt", evaluate, **options)
