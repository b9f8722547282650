"""The one decode loop: propose, one target pass over all drafted nodes, rule, commit.

Chains, trees, n-grams and plain decode (an empty draft) all go through `rounds`. Its invariant: the
last committed token is in nobody's cache; it is the first row of the next target pass.
"""

from functools import partial
from numbers import Integral

import numpy as np

from specnotes.dice import RandomDice
from specnotes.distributions import _overlap, check_token, probs_from_logits
from specnotes.records import Draft, Round, as_draft
from specnotes.rules import token_rule
from specnotes.trace import Trace


def generate(
    target, prompt, drafter=None, *, gamma=3, max_new_tokens, temperature=1.0, top_k=None, top_p=None,
    rule=token_rule, dice=None, stop=(),
):
    """Decode `max_new_tokens` tokens after `prompt` and return the Trace.

    target: a LanguageModel. prompt, stop: token ids; a stop token ends the text and is part of it.
    drafter: what guesses gamma tokens per pass (see specnotes.drafters); None is plain decode. temperature, top_k, top_p: the
    warp, the same for target and draft. rule: what judges a draft, see specnotes.rules; each drafter of trees says
    which rules go with it. dice: None takes fresh entropy and records its seed.
    The text has the target's warped law whatever the drafter is (for a lossless rule).
    Raises ValueError for an empty prompt or one that does not fit, a token outside the vocabulary,
    gamma or max_new_tokens < 0, a warp out of range, a drafter with a larger vocabulary.
    Source: Leviathan et al. 2023, Algorithm 1, repeated.

    >>> from specnotes.toy import TableModel
    >>> model = TableModel(lambda tokens: [0.0, 1.0, 2.0], vocab_size=3)
    >>> generate(model, [0], max_new_tokens=2, temperature=0).tokens
    (2, 2)
    """
    warp = partial(probs_from_logits, temperature=temperature, top_k=top_k, top_p=top_p)
    warp([[0.0]])
    seed = None
    if dice is None:
        seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        dice = RandomDice(np.random.default_rng(seed))
    stop = frozenset(_sequence("stop", stop))
    loop = rounds(
        target, prompt, drafter, gamma=gamma, max_new_tokens=max_new_tokens, warp=warp, rule=rule, dice=dice, stop=stop
    )
    done = tuple(loop)
    return Trace(done, _finish(done, max_new_tokens, stop), seed)


def _finish(done, max_new_tokens, stop):
    if done and done[-1].tokens[-1] in stop:
        return "stop"
    return "length" if sum(len(round.tokens) for round in done) == max_new_tokens else "context"


def rounds(target, prompt, drafter=None, *, gamma=3, max_new_tokens, warp, rule=token_rule, dice, stop=()):
    """The loop itself: an iterator of Round, one per target pass, until stop, length or context ends it.

    Arguments as in `generate`, with `warp` from logits [n, V] to rows [n, V]. Arguments are checked
    before the first model is touched, at the call. Caches are reset at the start, so one model serves one
    loop at a time: a loop that finds its target's cache changed raises ValueError.
    """
    stop = frozenset(_sequence("stop", stop))
    prompt = _check(target, prompt, drafter, gamma, max_new_tokens, stop, rule, dice)
    return _rounds(target, prompt, drafter, gamma, max_new_tokens, warp, rule, dice, stop)


def _check(target, prompt, drafter, gamma, max_new_tokens, stop, rule, dice):
    prompt = [check_token("prompt", token, target.vocab_size) for token in _sequence("prompt", prompt)]
    if not 1 <= len(prompt) <= target.max_length:
        raise ValueError(f"prompt: {len(prompt)} tokens, expected 1..{target.max_length} (the target's context)")
    for name, value in (("gamma", gamma), ("max_new_tokens", max_new_tokens)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name}: {value!r}, expected an integer >= 0")
    for token in stop:
        check_token("stop", token, target.vocab_size)
    if not callable(rule):
        raise ValueError(f"rule: {rule!r}, expected a function (p, q, draft, dice) -> Verdict")
    if not (hasattr(dice, "flip") and hasattr(dice, "draw")):
        raise ValueError(f"dice: {dice!r}, expected dice such as RandomDice(rng)")
    _check_drafter(target, drafter)
    return prompt


def _check_drafter(target, drafter):
    missing = [name for name in ("start", "propose", "commit") if drafter is not None and not hasattr(drafter, name)]
    if missing:
        raise ValueError(
            f"drafter: {type(drafter).__name__} has no {' and no '.join(missing)}, expected a drafter such as ModelDrafter(model)"
        )
    if getattr(drafter, "model", None) is target:
        raise ValueError("drafter: its model is the target itself, expected a second model with a cache of its own")
    if getattr(drafter, "vocab_size", 0) > target.vocab_size:
        raise ValueError(f"drafter: vocabulary of {drafter.vocab_size}, expected at most the target's {target.vocab_size}")


def _sequence(name, tokens):
    if isinstance(tokens, str):
        raise ValueError(f"{name}: {tokens!r}, expected token ids such as tokenizer.encode(text).ids")
    try:
        return list(tokens)
    except TypeError:
        raise ValueError(f"{name}: {tokens!r}, expected a sequence of token ids") from None


def _rounds(target, prompt, drafter, gamma, max_new_tokens, warp, rule, dice, stop):
    context, wanted = list(prompt), len(prompt) + max_new_tokens
    target.rollback(0)
    features = target.forward(prompt[:-1], last_only=True).features if len(prompt) > 1 else None
    if drafter is not None:
        drafter.start(prompt)
        if hasattr(drafter, "read"):
            drafter.read(features)
    limit = min(wanted, target.max_length)
    while len(context) < limit:
        if target.length != len(context) - 1:
            raise ValueError(f"target: {target.length} rows in its cache, expected {len(context) - 1}; something else used it")
        draft, q = _propose(drafter, context, _room(drafter, gamma, limit, target, context), warp, dice, target)
        output, root = _target_pass(target, context[-1], draft)
        try:
            p = warp(output.logits)
            verdict = rule(p, q, draft, dice)
        except BaseException:
            target.rollback(root)  # as it was before this pass
            raise
        rows = [root] + [root + 1 + node for node in verdict.path]
        target.keep(rows)
        tokens = _cut(verdict.tokens, limit - len(context), stop)
        context += tokens
        if drafter is not None:
            used = [row - root for row in rows[: len(tokens)]]
            features = None if output.features is None else output.features[used]
            drafter.commit(tokens, features)
        yield Round(draft, verdict, tuple(tokens), verdict.kinds[: len(tokens)], _betas(p, q, draft, verdict))
        if tokens[-1] in stop:
            return


def _room(drafter, gamma, limit, target, context):
    """The draft length near the end: as many tokens as the text has room for, none where a tree would not fit.

    A drafter of trees says how many nodes it proposes at most in `max_nodes`. The decision must not depend
    on what was drawn, or the text's law would.
    """
    gamma = min(gamma, limit - len(context) - 1)
    return gamma if getattr(drafter, "max_nodes", gamma) <= target.max_length - len(context) else 0


def _propose(drafter, context, gamma, warp, dice, target):
    vocab_size, room = target.vocab_size, target.max_length - len(context)
    if drafter is None or gamma == 0:
        return Draft((), ()), np.zeros((0, vocab_size))
    draft, q = drafter.propose(context, gamma, warp, dice)
    draft, q = as_draft(draft), np.asarray(q)
    if draft.levels > gamma:
        raise ValueError(f"drafter: proposed {draft.levels} tokens in a row, expected at most gamma = {gamma}")
    if len(draft) > room:
        raise ValueError(f"drafter: proposed {len(draft)} nodes with room for {room}, expected its max_nodes to say so")
    if len(draft) and (q.ndim != 2 or len(q) != len(draft) or q.shape[1] > vocab_size):
        raise ValueError(f"drafter: q of shape {q.shape} for {len(draft)} tokens, expected [{len(draft)}, {vocab_size}]")
    missing = vocab_size - q.shape[1] if len(draft) else 0
    return draft, np.pad(q, ((0, 0), (0, missing))) if missing > 0 else q


def _target_pass(target, last, draft):
    """One pass over the last committed token and all drafted nodes: the Output, and the first row's index."""
    root = target.length
    parents = [root - 1] + [root + 1 + parent for parent in draft.parents]
    return target.forward([last, *draft.tokens], None if draft.is_chain else parents), root


def _cut(tokens, room, stop):
    """The emitted tokens up to the first stop token, and no more than fit."""
    kept = list(tokens[:room])
    ends = [index for index, token in enumerate(kept) if token in stop]
    return kept[: ends[0] + 1] if ends else kept


def _betas(p, q, draft, verdict):
    if not (len(draft) and draft.is_chain):
        return ()
    examined = len(verdict.path) + (verdict.kind == "recovered")
    return tuple(_overlap(p[:examined], q[:examined]).tolist())


def near_ties(target, prompt, tokens, gap=1e-3):
    """Where a greedy text hangs by a hair: [(index of the new token, top-two logit gap), ...] below `gap`.

    Float32 sums depend on how many rows are computed at once, so at such a place two correct runs may
    part. Reads prompt and tokens once; the cache is reset.

    >>> from specnotes.toy import TableModel
    >>> near_ties(TableModel(lambda tokens: [1.0, 1.0, 0.0], vocab_size=3), [0], (0, 0))
    [(0, 0.0), (1, 0.0)]
    """
    if len(tokens) == 0:
        return []
    target.rollback(0)
    logits = target.forward([*prompt, *tokens[:-1]]).logits[len(prompt) - 1 :]
    top = np.sort(logits, axis=-1)[:, -2:]
    gaps = (top[:, -1] - top[:, 0]).tolist()
    return [(index, value) for index, value in enumerate(gaps) if value < gap]
