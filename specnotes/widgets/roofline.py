"""The third explorer: a step on the roofline, where its time goes, and what speculation gains as a batch grows."""

from dataclasses import asdict
from math import isfinite

import traitlets

from specnotes import roofline
from specnotes.roofline import HARDWARE, MODELS
from specnotes.widgets.base import Choice, Explorer, Slider

MAX_BATCH = 256
BATCHES = sorted({round(2 ** (eighth / 8)) for eighth in range(65)})  # 1..256, evenly on a logarithmic axis


def described(step):
    """A Step as a dict, with its derived numbers."""
    derived = ("memory_seconds", "seconds", "intensity", "flop_per_s", "bound")
    return {**asdict(step), **{name: getattr(step, name) for name in derived}}


class RooflineExplorer(Explorer):
    """Where a pass stands on the roofline of an accelerator, and whether speculation pays there.

    Settings: hardware and model (names in `roofline.HARDWARE` and `roofline.MODELS`), batch (1..256 texts),
    context (0..16,384 tokens each), gamma (0..16), alpha (0..1), c (draft step / plain step, 0..1).
    `results`: plain and verify, the Steps over 1 and gamma + 1 positions with seconds, intensity, flop_per_s
    and bound; speedup; free_positions; crossover_batch (None where no batch is large enough); curve, the
    speed-up at each of `tables["batches"]`; card, the Hardware's numbers. All come from `specnotes.roofline`.
    Raises ValueError for a setting that does not exist or is out of range.

    >>> round(RooflineExplorer(context=0).results["crossover_batch"], 1)
    30.6
    """

    script = "roofline"
    title = "One pass on the roofline, and a batch of users"
    readouts = (
        ("verifying pass", "{verify_ms:.2f} ms"),
        ("it waits for", "{waits_for}"),
        ("speed-up over plain decode", "{speedup:.2f}×"),
        ("positions free per text", "{free_positions}"),
        ("crossover batch", "{crossover_batch:.1f}"),
        ("weights and cache", "{needed_gb:.1f} GB"),
        ("fits the card", "{room}"),
    )
    hardware = Choice("A100-80GB-SXM", HARDWARE, "hardware")
    model = Choice("7B", MODELS, "model")
    batch = Slider(8, 1, MAX_BATCH, 1, "batch: texts at once")
    context = Slider(512, 0, 16384, 128, "context: tokens per text")
    gamma = Slider(4, 0, 16, 1, "draft length γ")
    alpha = Slider(0.80, 0, 1, 0.01, "acceptance α", places=2)
    c = Slider(0.05, 0, 1, 0.01, "draft cost c", places=2)

    @traitlets.default("tables")
    def _default_tables(self):
        cards = {name: asdict(card) for name, card in HARDWARE.items()}
        shapes = {name: asdict(shape) for name, shape in MODELS.items()}
        return {"hardware": cards, "models": shapes, "batches": BATCHES}

    @staticmethod
    def compute(hardware, model, batch, context, gamma, alpha, c):
        """The readouts, the two steps and the curve for one setting."""
        card, shape = HARDWARE[hardware], MODELS[model]
        plain, verify = (roofline.step(card, shape, positions, batch, context) for positions in (1, gamma + 1))
        crossover = roofline.crossover_batch(card, shape, gamma + 1, context)

        def speedup(batch):
            return roofline.speculation_speedup(card, shape, alpha, gamma, batch, context, c=c)

        return {
            "plain": described(plain),
            "verify": described(verify),
            "verify_ms": 1000 * verify.seconds,
            "waits_for": "reading" if verify.bound == "memory" else "arithmetic",
            "speedup": speedup(batch),
            "free_positions": roofline.free_positions(card, shape, batch, context),
            "crossover_batch": crossover if isfinite(crossover) else None,
            "needed_gb": verify.bytes / 1e9,
            "room": "yes" if verify.fits else "no",
            "curve": [speedup(one) for one in BATCHES],
            "batches": BATCHES,
            "card": asdict(card),
        }
