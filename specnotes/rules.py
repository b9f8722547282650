"""Verify rules: given the target's rows and a draft, which tokens does a pass emit?

Every rule is `rule(p, q, draft, dice) -> Verdict`.

    p      [n+1, V]  target rows: row 0 follows the committed text, row i+1 follows node i
    q      [n, V]    the law node i's token was drawn from
    draft  a Draft of n nodes, or a list of n tokens, which is a chain

Rules never change their inputs, never cast, and ask only their dice for luck. The rows may be object
arrays of Fractions: then the very code that decodes has an exact law.
"""

from functools import cache, partial
from numbers import Real

import numpy as np

from specnotes.distributions import _pair, _residual, check_one_row, check_rows, check_token, without
from specnotes.records import Verdict, as_draft
from specnotes.theory import typical_threshold


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
    return dice.flip(_ratio(p_x, q_x))


def _ratio(p_x, q_x):
    # The quotient is formed only where q(x) > p(x) >= 0, so never with a zero below.
    return p_x / q_x if p_x < q_x else 1 if p_x > 0 else 0


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
            return _verdict(draft, path, token)
        node = children[chosen]
        path.append(node)


def _verdict(draft, path, token):
    """The Verdict that accepts `path` and ends with `token`: a bonus below a leaf, recovered elsewhere."""
    kind = "recovered" if draft.children(path[-1] if path else -1) else "bonus"
    return Verdict(tuple(path), token, kind, tuple(draft.tokens[node] for node in path))


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
        raise ValueError(
            f"draft: parents {draft.parents} branch, expected a chain for this rule; greedy_rule, sampler_match_rule, "
            "with_replacement_rule, without_replacement_rule and typical_rule take trees"
        )


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


def with_replacement_rule(p, q, draft, dice):
    """Recursive rejection: judge a node's candidates one after another, each against what the elder ones left of p.

    p [n+1, V], q [n, V], a draft of any shape; row i of q is the law node i's token was really drawn from, given
    its elder siblings: the draft's own row where siblings are drawn independently, one-hot where a candidate
    is not drawn. The first is accepted with min(1, p(x)/q(x)); after a rejection p becomes the residual
    max(0, p - q), normalised, and the next is judged by that. On a chain this is `token_rule`. Takes one flip per
    candidate judged and one draw at the end. The emitted tokens have the target's law, exactly.
    Raises ValueError for rows, shapes or tokens that do not fit.
    Source: Miao et al. 2023 (SpecInfer), Algorithm 2 and Theorem 4.2.

    >>> from specnotes.dice import ScriptedDice
    >>> from specnotes.records import Draft
    >>> p, q, siblings = [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5]] * 2, Draft((0, 1), (-1, -1))
    >>> with_replacement_rule(p, q, siblings, ScriptedDice([0.0, 0.9, 0.7])).tokens
    (1, 1)
    """
    p, q, draft = _checked(p, q, draft)
    return walk(p, q, draft, dice, _judge_token)


def without_replacement_rule(p, q, draft, dice):
    """Recursive rejection for siblings drawn without replacement, so that no candidate is offered twice.

    As `with_replacement_rule`, but from row i of q the tokens of elder siblings are struck out and the rest is
    normalised: q may be the draft's own row, or already the conditional one, which striking leaves as it is. Where
    nothing is left the token counts as drawn uniformly from the tokens not offered yet. A token that an
    elder sibling bears was not drawn without replacement; it is judged by its row as given.
    The emitted tokens have the target's law, exactly; once every token has been offered one is accepted.
    Raises ValueError for rows, shapes or tokens that do not fit.
    Source: Chen et al. 2024 (Sequoia), Algorithm 2 and Theorem 3.7.

    >>> from specnotes.dice import ScriptedDice
    >>> from specnotes.records import Draft
    >>> p, q, siblings = [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]], [[0.75, 0.25]] * 2, Draft((0, 1), (-1, -1))
    >>> without_replacement_rule(p, q, siblings, ScriptedDice([0.7, 0.9, 0.2])).tokens
    (1, 1)
    """
    p, q, draft = _checked(p, q, draft)
    return walk(p, q, draft, dice, _judge_struck)


def _judge_struck(p_row, q_rows, tokens, dice):
    struck = [_strike(q_row, tokens[:index], x) for index, (q_row, x) in enumerate(zip(q_rows, tokens))]
    return _judge_token(p_row, struck, tokens, dice)


def _strike(q_row, elders, x):
    """The law of token x when none of the elders could be drawn again."""
    if x in elders or not any(q_row[elder] > 0 for elder in elders):
        return q_row
    return without(q_row, elders)


def typical_rule(epsilon, delta):
    """Medusa's typical acceptance, a LOSSY rule: accept every drafted token the target finds likely enough.

    A candidate is accepted when p(x) > min(epsilon, delta e^-H), whatever it was drawn from; of the accepted
    paths the longest is taken, among equals the likeliest under the target, then the elder. The last token
    is drawn from the target's row (the paper takes its largest entry). q is checked and not used. Takes one draw.
    The law is not the target's: a token above the bar is emitted whenever it is drafted.
    Raises ValueError for epsilon outside [0, 1] or delta < 0; the rule for rows, shapes or tokens that do not fit.
    Source: Cai et al. 2024 (Medusa), section 2.3.1; ties as in the authors' code.

    >>> from specnotes.dice import ScriptedDice
    >>> typical_rule(0.09, 0.3)([[0.6, 0.3, 0.1], [1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]], [2], ScriptedDice([0.5])).tokens
    (2, 0)
    """
    typical_threshold([1.0], epsilon, delta)

    def rule(p, q, draft, dice):
        p, q, draft = _checked(p, q, draft)
        path = _longest(p, draft, cache(lambda row: typical_threshold(p[row], epsilon, delta)))
        return _verdict(draft, path, dice.draw(p[path[-1] + 1 if path else 0]))

    return rule


def _longest(p, draft, bar):
    reached = {-1: ((), 1)}  # of the committed text and every accepted node: its path and that path's probability
    for node, (x, parent) in enumerate(zip(draft.tokens, draft.parents)):
        if parent in reached and p[parent + 1][x] > bar(parent + 1):
            path, weight = reached[parent]
            reached[node] = (*path, node), weight * p[parent + 1][x]
    return max(reached.values(), key=lambda found: (len(found[0]), found[1]))[0]


def block_rule(p, q, draft, dice):
    """Block verification: judge a chain as a whole, so that a poor token may be carried by good ones after it.

    p [n+1, V], q [n, V], a chain of n tokens. With w_0 = 1 and w_i = min(1, w_{i-1} p(x_i)/q(x_i)), the longest
    accepted beginning has length i with the chance Z_i / (Z_i + 1 - w_i), where Z_i is the sum of max(0, w_i p - q)
    after i tokens, and w_n for all n. The last token is drawn from max(0, w_i p - q), normalised, or from
    p after all n. Asks for the longest beginning first: one flip for each length tried, one draw at the end.
    The emitted tokens have the target's law, exactly, and on average no rule on the drafted path accepts more.
    Raises ValueError for rows, shapes or tokens that do not fit, or a draft that branches.
    Source: Sun et al. 2024 (Block Verification), Algorithm 2, Theorems 1 and 2.

    >>> from specnotes.dice import ScriptedDice
    >>> p, q = [[0.25, 0.75]] * 3, [[0.75, 0.25]] * 2
    >>> block_rule(p, q, [0, 1], ScriptedDice([0.9, 0.5])).tokens
    (0, 1, 1)
    """
    p, q, draft = _checked(p, q, draft)
    _check_chain(draft)
    n, weights = len(draft), [1]
    for i, x in enumerate(draft.tokens):
        weights.append(_ratio(weights[-1] * p[i][x], q[i][x]))
    owed = [np.maximum(weights[i] * p[i] - q[i], 0).sum() for i in range(n)]
    # Where nothing is owed at weight 1 the two rows are equal, and a longer beginning is certain.
    chances = [z / (z + (1 - w)) if z > 0 else 0 for z, w in zip(owed, weights)] + weights[n:]
    length = next((i for i in range(n, 0, -1) if dice.flip(chances[i])), 0)
    row = p[n] if length == n else _residual(weights[length] * p[length], q[length])
    return _verdict(draft, range(length), dice.draw(row))
