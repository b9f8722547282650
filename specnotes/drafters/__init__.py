"""Drafters: anything that proposes tokens for the target to check.

A drafter has three methods. `start(prompt)` begins a new text. `propose(context, gamma, warp, dice)`
returns `(draft, q)`: a Draft of at most `gamma` levels, and the law [n, V] each of its tokens was drawn
from. `commit(tokens, features)` tells it which tokens the pass emitted, and the target's features
[len(tokens), d] at the rows they were predicted from (None when the target has none).
"""

from specnotes.drafters.model import ModelDrafter

__all__ = ["ModelDrafter"]
