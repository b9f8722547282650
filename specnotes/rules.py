"""Verify rules: given the target's rows and a draft, which tokens does a pass emit?

Every rule is `rule(p, q, draft, dice) -> Verdict`.

    p      [n+1, V]  target rows: row 0 follows the committed text, row i+1 follows node i
    q      [n, V]    the law node i's token was drawn from
    draft  a Draft of n nodes, or a list of n tokens, which is a chain

Rules never change their inputs, never cast, and ask only their dice for luck. The rows may be object
arrays of Fractions: then the very code that decodes has an exact law.
"""

from functools import partial
from numbers import Real

import numpy as np

from specnotes.distributions import _pair, _residual, check_one_row, check_rows, check_token
from specnotes.records import Verdict, as_draft


def verify(p, q, x, dice):
    """Accept or replace one drafted token: `(accepted, token)`.

    p, q: [V] rows of the target and of the draft; x: the token drawn from q. It is accepted with
    probability min(1, p(x)/q(x)); otherwise the token is drawn from the residual max(0, p - q).
    Takes one flip, and one draw after a rejection. The token has law p, exactly.
    Raises ValueError for rows that are not distributions, shapes that do not agree, x out of range.
    Source: Leviathan et al. 2023, section 2.3; Chen et al. 2023, Theorem 1 (with p and q swapped).

    >>> from specnotes.dice import ScriptedDice
    >>> verify([0.5, 0.5], [1.0, 0.0], 0, ScriptedDice([0.7, 0.2]))
    (False, 1)
    """
    p, q = _pair(p, q)
    check_one_row("p", p)
    x = check_token("x", x, len(p))
    if _accepts(p[x], q[x], dice):
        return True, x
    return False, dice.draw(_residual(p, q))


def _accepts(p_x, q_x, dice):
    # The quotient is formed only where q(x) > p(x) >= 0, so never with a zero below.
    return dice.flip(p_x / q_x if p_x < q_x else 1 if p_x > 0 else 0)


def walk(p, q, draft, dice, judge):
    """Follow accepted nodes down the draft and return the Verdict: the frame most rules share.

    `judge(p_row, q_rows, tokens, dice) -> (index or None, token)` looks at one node's candidates, elder
    first (there are none below a leaf), and either accepts one or emits a token of its own.
    """
    path, node = [], -1
    while True:
        children = draft.children(node)
        tokens = [draft.tokens[child] for child in children]
        chosen, token = judge(p[node + 1], [q[child] for child in children], tokens, dice)
        if chosen is None:
            kind = "recovered" if children else "bonus"
            return Verdict(tuple(path), token, kind, tuple(draft.tokens[accepted] for accepted in path))
        node = children[chosen]
        path.append(node)


def _checked(p, q, draft):
    """The arguments of a rule as arrays and a Draft, or a ValueError that names what is wrong."""
    draft, p = as_draft(draft), check_rows("p", p)
    if p.shape != (len(draft) + 1, p.shape[-1]):
        raise ValueError(f"p: shape {p.shape} for {len(draft)} drafted tokens, expected {len(draft) + 1} rows [n+1, V]")
    q = check_rows("q", q) if len(draft) else p[:0]
    if q.shape != (len(draft), p.shape[-1]):
        raise ValueError(f"q: shape {q.shape} does not agree with p {p.shape}, expected {(len(draft), p.shape[-1])}")
    check_token("draft", max(draft.tokens, default=0), p.shape[-1])
    return p, q, draft


def _check_chain(draft):
    if not draft.is_chain:
        raise ValueError(f"draft: parents {draft.parents} branch, expected a chain for this rule")


def token_rule(p, q, draft, dice):
    """The speculative sampling rule on a chain: verify one token after another, stop at the first rejection.

    p [n+1, V], q [n, V], draft of n tokens; returns a Verdict. Takes one flip per position examined and
    one draw at the end. The emitted tokens have the target's law, exactly.
    Raises ValueError for rows, shapes or tokens that do not fit, or a draft that branches.
    Source: Leviathan et al. 2023, Algorithm 1.

    >>> from specnotes.dice import ScriptedDice
    >>> token_rule([[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0]], [0], ScriptedDice([0.4, 0.9])).tokens
    (0, 1)
    """
    p, q, draft = _checked(p, q, draft)
    _check_chain(draft)
    return walk(p, q, draft, dice, _judge_token)


def _judge_token(p_row, q_rows, tokens, dice, lenience=1):
    for index, (q_row, x) in enumerate(zip(q_rows, tokens)):
        if _accepts(p_row[x], lenience * q_row[x], dice):
            return index, x
        p_row = _residual(p_row, q_row)
    return None, dice.draw(p_row)


def lenient_rule(lenience):
    """The token rule with a thumb on the scale: a rule that accepts with min(1, p(x) / (lenience q(x))).

    lenience: a number in (0, 1]; 1 is the token rule. Below 1 more is accepted and the law is no longer
    the target's, though no token becomes likelier than p(x) / lenience. The paper leaves the residual
    open; here it is max(0, p - q), as in the token rule.
    Raises ValueError for a lenience outside (0, 1]; the rule raises as `token_rule` does.
    Source: Leviathan et al. 2023, appendix A.5.

    >>> from specnotes.dice import ScriptedDice
    >>> lenient_rule(0.5)([[0.5, 0.5], [1.0, 0.0]], [[1.0, 0.0]], [0], ScriptedDice([0.9, 0.0])).tokens
    (0, 0)
    """
    if not isinstance(lenience, Real) or not 0 < lenience <= 1:
        raise ValueError(f"lenience: {lenience!r}, expected a number in (0, 1]")

    def rule(p, q, draft, dice):
        p, q, draft = _checked(p, q, draft)
        _check_chain(draft)
        return walk(p, q, draft, dice, partial(_judge_token, lenience=lenience))

    return rule


def sampler_match_rule(p, q, draft, dice):
    """Let the target draw its own token, and accept a draft when it bears that token.

    p [n+1, V], q [n, V], a draft of any shape; q is checked and not used. Takes one draw per position
    examined. Every emitted token is the target's own draw, so the law is the target's whatever the draft
    is; a chain position accepts with probability sum of p q, never more than sum of min(p, q).
    Raises ValueError for rows, shapes or tokens that do not fit.
    Source: the sampling rule of several public implementations; the identity is proved in the course.

    >>> from specnotes.dice import ScriptedDice
    >>> sampler_match_rule([[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0]], [1], ScriptedDice([0.7, 0.2])).tokens
    (1, 0)
    """
    p, q, draft = _checked(p, q, draft)
    return walk(p, q, draft, dice, _judge_match)


def _judge_match(p_row, q_rows, tokens, dice):
    token = dice.draw(p_row)
    return (tokens.index(token) if token in tokens else None), token


def greedy_rule(p, q, draft, dice=None):
    """Greedy decode, speculated: accept a drafted token when it is the target's first largest entry.

    p [n+1, V]: rows whose order is the target's (probabilities of any temperature); q is checked and
    not used; the dice are not asked. Works on trees. Emits exactly what greedy decode would.
    Raises ValueError for rows, shapes or tokens that do not fit.
    Source: Stern et al. 2018, section 3; SpecInfer (Miao et al. 2023), section 4.3.

    >>> greedy_rule([[0.1, 0.9], [0.8, 0.2]], [[0.5, 0.5]], [1]).tokens
    (1, 0)
    """
    p, q, draft = _checked(p, q, draft)
    return walk(p, q, draft, dice, _judge_greedy)


def _judge_greedy(p_row, q_rows, tokens, dice):
    best = int(np.argmax(p_row))
    return (tokens.index(best) if best in tokens else None), best
