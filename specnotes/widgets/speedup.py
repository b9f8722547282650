"""The first explorer: tokens per pass and speed-up from acceptance, draft length and draft cost."""

from specnotes import theory
from specnotes.widgets.base import Explorer, Slider

MAX_GAMMA = 16


class SpeedupExplorer(Explorer):
    """How many tokens a target pass yields, and how much faster that is than plain decode.

    Settings: alpha (acceptance, 0..1), gamma (draft length, 0..16), c (draft step / target step, 0..1).
    `results`: tokens_per_pass, speedup, best_gamma, best_speedup, tokens_if_all_accepted, and curve, the
    speed-up at gamma = 0..16. All numbers come from `specnotes.theory`.
    Raises ValueError for a setting that does not exist or is out of range.

    >>> round(SpeedupExplorer(alpha=0.8, gamma=4, c=0.05).results["tokens_per_pass"], 2)
    3.36
    """

    script = "speedup"
    title = "Draft γ tokens, verify them in one pass"
    readouts = (
        ("tokens per target pass", "{tokens_per_pass:.2f}"),
        ("speed-up", "{speedup:.2f}×"),
        ("best γ here", "{best_gamma} at {best_speedup:.2f}×"),
        ("tokens if all accepted", "{tokens_if_all_accepted}"),
    )
    alpha = Slider(0.80, 0, 1, 0.01, "acceptance α", places=2)
    gamma = Slider(4, 0, MAX_GAMMA, 1, "draft length γ")
    c = Slider(0.05, 0, 1, 0.01, "draft cost c", places=2)

    @staticmethod
    def compute(alpha, gamma, c):
        """The readouts and the curve for one setting of the sliders."""
        best_gamma, best_speedup = theory.best_gamma(alpha, c, MAX_GAMMA)
        return {
            "tokens_per_pass": theory.expected_tokens(alpha, gamma),
            "speedup": theory.speedup(alpha, gamma, c),
            "best_gamma": best_gamma,
            "best_speedup": best_speedup,
            "tokens_if_all_accepted": gamma + 1,
            "curve": [theory.speedup(alpha, length, c) for length in range(MAX_GAMMA + 1)],
        }
