"""Write book/data/rows.npz: rows of the embedded pair at a few places of a text, for the chapter *What stays exact*.

    p, q    [4, V]  target and draft rows at temperature 1, in float64
    places  [4]     how many tokens of the text come before each row
    tokens  [n]     the text
"""

from pathlib import Path

import numpy as np

from specnotes.distributions import probs_from_logits
from specnotes.pair import load_pair

TEXT = "PROSPERO.\nOur revels now are ended. These our actors,\nAs I foretold you, were all spirits and\n"
FILE = Path(__file__).resolve().parent.parent / "book" / "data" / "rows.npz"


def rows():
    """{name: array} as described above. The places are spread over the text; the first is after its last token."""
    pair = load_pair(dtype="float64")
    tokens = pair.tokenizer.encode(TEXT).ids
    places = [len(tokens), len(tokens) // 2, len(tokens) // 3, 5]
    p, q = (probs_from_logits(model.forward(tokens).logits)[np.array(places) - 1] for model in pair[:2])
    return {"p": p, "q": q, "places": np.array(places), "tokens": np.array(tokens)}


if __name__ == "__main__":
    np.savez_compressed(FILE, **rows())
