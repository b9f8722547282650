"""One training loop for target and draft: cosine schedule, checkpoints, resume."""

import math
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tqdm import tqdm


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: `rows` windows a step, peak learning rate, its warm-up in steps."""

    steps: int
    rows: int
    peak_rate: float
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0
    final_rate: float = 0.02

    def rate(self, step):
        """Learning rate of a step: a linear warm-up, then a cosine down to `final_rate` of the peak.

        >>> Recipe(steps=200, rows=1, peak_rate=1.0, warmup=100, final_rate=0.0).rate(150)
        0.5
        """
        if step < self.warmup:
            return self.peak_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.peak_rate * (self.final_rate + (1 - self.final_rate) * (1 + math.cos(math.pi * done)) / 2)


def add_run_options(parser, made):
    """The options every training has: where it works, its seed, its threads, whether it compiles."""
    parser.add_argument("--out", required=True, help=f"folder for checkpoints and the finished {made}")
    parser.add_argument("--corpus", help="folder that holds (or is to hold) the corpus archive; default: --out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-compile", action="store_true", help="skip torch.compile (needs no C++ compiler; slower)")


def say(line):
    """Print a line at once, so that a log shows where the training is."""
    print(line, flush=True)


def optimizers_for(model, recipe):
    """Muon for the matrices of the layers, AdamW for embeddings, biases and LayerNorms (undecayed where 1-D).

    Muon makes each update orthogonal, so all directions of a matrix learn at one pace; its step is scaled
    to the size of AdamW's, and both follow one schedule. Source: Liu et al. 2025, Muon is Scalable, section 2.
    """
    inner = [p for name, p in model.named_parameters() if p.ndim == 2 and ".h." in name]
    embeddings = [p for name, p in model.named_parameters() if p.ndim == 2 and ".h." not in name]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": embeddings, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [
        torch.optim.Muon(
            inner, lr=recipe.peak_rate, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(groups, lr=recipe.peak_rate, betas=(0.9, 0.99)),
    ]


def save(state, path):
    """Write a checkpoint so that a kill at any moment leaves the old one or the new one."""
    path = Path(path)
    fresh = path.with_suffix(".new")
    torch.save(state, fresh)
    os.replace(fresh, path)


def train(model, loss_at, recipe, checkpoint, evaluate, *, every=250, save_seconds=60.0, say=say, stop_at=None):
    """Train `model` in place; return (history [{step, loss, ...}, ...], seconds).

    loss_at(step) is the loss of that step's batch, a function of the step and the weights alone, so a
    run that was killed and started again takes the same steps. evaluate() -> {name: value}; this and the
    mean loss since the last time enter the history every `every` steps.
    `stop_at` ends the call early after that many steps, with a checkpoint. Raises ValueError when the
    checkpoint was written under another recipe.
    """
    optimizers, step, history, recent, seconds = optimizers_for(model, recipe), 0, [], [], 0.0
    if Path(checkpoint).exists():
        step, history, recent, seconds = _restore(model, optimizers, recipe, checkpoint)
    saved = time.monotonic()
    began = saved - seconds
    end = recipe.steps if stop_at is None else min(stop_at, recipe.steps)
    bar = tqdm(total=recipe.steps, initial=step, disable=None, unit="step")
    while step < end:
        recent.append(_take_step(model, optimizers, loss_at, recipe, step))
        step += 1
        bar.update()
        seconds = time.monotonic() - began
        if step % every == 0 or step == recipe.steps:
            history.append({"step": step, "loss": sum(recent) / len(recent), **evaluate()})
            recent = []
            say(f"step {step}/{recipe.steps}, {seconds:.0f} s: {_line(history[-1])}")
        if step == end or time.monotonic() - saved > save_seconds:
            save(_state(model, optimizers, recipe, step, history, recent, seconds), checkpoint)
            saved = time.monotonic()
    bar.close()
    return history, seconds


def _take_step(model, optimizers, loss_at, recipe, step):
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = recipe.rate(step)
    model.train()
    model.zero_grad(set_to_none=True)
    loss = loss_at(step)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    for optimizer in optimizers:
        optimizer.step()
    return loss.item()


def _line(entry):
    return ", ".join(f"{name} {value:.4f}" for name, value in entry.items() if name != "step")


def _state(model, optimizers, recipe, step, history, recent, seconds):
    return {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "recipe": asdict(recipe),
        "step": step,
        "history": history,
        "recent": recent,
        "seconds": seconds,
    }


def _restore(model, optimizers, recipe, checkpoint):
    state = torch.load(checkpoint, weights_only=True)
    if state["recipe"] != asdict(recipe):
        raise ValueError(f"checkpoint: {checkpoint} was written under {state['recipe']}, expected {asdict(recipe)}")
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return state["step"], state["history"], state["recent"], state["seconds"]
