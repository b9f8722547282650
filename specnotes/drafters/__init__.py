"""Drafters: anything that proposes tokens for the target to check.

A drafter has three methods. `start(prompt)` begins a new text. `propose(context, gamma, warp, dice)`
returns `(draft, q)`: a Draft of at most `gamma` levels (or a list of tokens, a chain), and the law [n, V]
each of its tokens was drawn from. `commit(tokens, features)` tells it which tokens the pass emitted, and
the target's features [len(tokens), d] at the rows they were predicted from (None when it has none). A
drafter of trees also has `max_nodes`, the most nodes it ever proposes: the loop stops drafting where
they would not fit. One that builds on features also has `read(features)`, called once after `start` with the target's
features [len(prompt) - 1, d] of the prompt, all but its last token (None for a prompt of one).

A guess that is not drawn has a one-hot q. This one repeats the last token:

>>> import numpy as np
>>> class Repeat:
...     def start(self, prompt): pass
...     def propose(self, context, gamma, warp, dice):
...         return [context[-1]] * gamma, np.eye(3)[[context[-1]] * gamma]
...     def commit(self, tokens, features=None): pass
>>> from specnotes.decode import generate
>>> from specnotes.toy import TableModel
>>> model = TableModel(lambda text: [0.0, 9.0, 0.0], vocab_size=3)
>>> generate(model, [1], Repeat(), gamma=2, max_new_tokens=6, temperature=0).tokens_per_pass
3.0
"""

from specnotes.drafters.eagle import EagleDrafter
from specnotes.drafters.medusa import MedusaDrafter
from specnotes.drafters.model import ModelDrafter

__all__ = ["EagleDrafter", "MedusaDrafter", "ModelDrafter"]
