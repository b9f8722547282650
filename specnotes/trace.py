"""The record of a run, and every number about it.

Published "acceptance rates" mean four different things. Each has a name of its own here, and all of
them are computed from the same list of rounds.
"""

from dataclasses import dataclass, field


def _ratio(top, bottom):
    return top / bottom if bottom else None


@dataclass(frozen=True, repr=False)
class Trace:
    """What `generate` returns.

    tokens: emitted token ids, the prompt left out. kinds: accepted, recovered or bonus, one each.
    rounds: one Round per target pass. finish: "length", "stop" or "context". seed: what `dice=None`
    drew, to repeat the run; None when dice were given.
    Rates are None where there is nothing to divide by (plain decode drafts nothing).
    """

    rounds: tuple
    finish: str
    seed: int | None = None
    tokens: tuple = field(init=False)
    kinds: tuple = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "rounds", tuple(self.rounds))
        object.__setattr__(self, "tokens", tuple(token for round in self.rounds for token in round.tokens))
        object.__setattr__(self, "kinds", tuple(kind for round in self.rounds for kind in round.kinds))

    def __repr__(self):
        return f"Trace({len(self.tokens)} tokens in {len(self.rounds)} passes, finish={self.finish!r}, seed={self.seed})"

    @property
    def tokens_per_pass(self):
        """Emitted tokens per target pass, the target's own token included: 1..gamma+1."""
        return _ratio(len(self.tokens), len(self.rounds))

    @property
    def accepted_counts(self):
        """Accepted drafts of each round, as the rule said, before a stop or limit cut the text."""
        return tuple(len(round.verdict.path) for round in self.rounds)

    @property
    def examined_counts(self):
        """Positions the rule examined in each round: the accepted ones, and the rejected one if any."""
        return tuple(len(r.verdict.path) + (r.verdict.kind == "recovered") for r in self.rounds)

    @property
    def alpha(self):
        """Mean of sum min(p, q) over the positions examined: Leviathan's alpha, without coin noise.

        Of chains judged one position at a time: `block_rule` looks at whole chains, and examines more. None where a
        draft branched: several candidates at a position have no single overlap.
        """
        if not all(round.draft.is_chain for round in self.rounds):
            return None
        betas = [beta for round in self.rounds for beta in round.betas]
        return _ratio(sum(betas), len(betas))

    @property
    def acceptance(self):
        """Accepted / examined positions: estimates the same alpha from the coins themselves."""
        return _ratio(sum(self.accepted_counts), sum(self.examined_counts))

    @property
    def accepted_over_drafted(self):
        """Accepted / drafted tokens: what many logs print. Lower than alpha, as unreached drafts count."""
        return _ratio(sum(self.accepted_counts), sum(len(round.draft) for round in self.rounds))

    @property
    def survival(self):
        """P(the first j drafts of a path were accepted) for j = 1..gamma: the fraction of passes, as a tuple."""
        deepest = max((round.draft.levels for round in self.rounds), default=0)
        return tuple(_ratio(self._reaching(j), len(self.rounds)) for j in range(1, deepest + 1))

    @property
    def acceptance_by_position(self):
        """P(draft j accepted, given that the rule examined it) for j = 1..gamma, as a tuple."""
        examined = [sum(n >= j for n in self.examined_counts) for j in range(1, len(self.survival) + 1)]
        return tuple(_ratio(self._reaching(j), n) for j, n in enumerate(examined, start=1))

    def _reaching(self, j):
        return sum(n >= j for n in self.accepted_counts)


def pieces(tokenizer, tokens):
    """The text each token adds, so that the pieces joined are the decoded text.

    A token that ends inside a character adds nothing; the one that completes it adds the character.
    """
    done, found = "", []
    for end in range(1, len(tokens) + 1):
        text = tokenizer.decode(list(tokens[:end]), skip_special_tokens=False)
        if text.endswith("\N{REPLACEMENT CHARACTER}") and end < len(tokens):
            text = done
        found.append(text[len(done) :])
        done = text
    return found
