"""Medusa heads and an EAGLE head in torch, and what they learn from a frozen target."""

import torch
from torch import nn
from torch.nn import functional as F

from specnotes.train.model import Block, Projection


def features_of(model, ids):
    """The target's hidden states after the last LayerNorm: ids [rows, n] -> [rows, n, d], products in bfloat16."""
    parts = model.transformer
    with torch.autocast("cpu", torch.bfloat16):
        x = parts["wte"](ids) + parts["wpe"].weight[: ids.shape[1]]
        for block in parts["h"]:
            x = block(x)
        return parts["ln_f"](x).float()


class Medusa(nn.Module):
    """Heads on the target's feature f [..., d]: head k guesses what follows k tokens later, unembed(f + silu(f W + b)).

    Tied heads use the target's unembedding; the others train a copy each. W and b start at zero, so every head begins
    as the target's own. Source: Cai et al. 2024 (Medusa), section 2.1.1.
    """

    def __init__(self, table, heads, tied):
        super().__init__()
        width = table.shape[1]
        self.medusa = nn.ModuleDict({"h": nn.ModuleList(Projection(width, width) for _ in range(heads))})
        for block in self.medusa["h"]:
            nn.init.zeros_(block.weight)
        self.table = table.detach()
        self.unembed = None if tied else nn.ParameterList(table.detach().clone() for _ in range(heads))

    def forward(self, features):
        """Logits [rows, n, V] of each head."""
        tables = self.unembed or [self.table] * len(self.medusa["h"])
        with torch.autocast("cpu", torch.bfloat16):
            mixed = [features + F.silu(block(features)) for block in self.medusa["h"]]
            return [F.linear(x, table).float() for x, table in zip(mixed, tables)]


def medusa_loss(heads, features, p):
    """Mean cross-entropy of every head with the target's law where it looks: features [rows, n, d], p [rows, n, V]."""
    losses = [
        -(p[:, ahead:] * logits[:, :-ahead].log_softmax(-1)).sum(-1).mean()
        for ahead, logits in enumerate(heads(features), start=1)
    ]
    return torch.stack(losses).mean()


class Eagle(nn.Module):
    """One GPT-2 layer that guesses the target's next feature from its features and the tokens that followed them.

    Row t reads feature t (nothing where not `fed`) and token t + 1 (token t where not `shifted`: then it cannot know
    what was drawn), has position t, and returns a guess of feature t + 1, which the target's unembedding turns into
    the law of token t + 2.
    Source: Li et al. 2024 (EAGLE), section 3.1.
    """

    def __init__(self, target, seed, shifted=True, fed=True):
        super().__init__()
        shape, parts = target.shape, target.transformer
        self.shape, self.shifted, self.fed = shape, shifted, fed
        self.table, self.places = parts["wte"].weight.detach(), parts["wpe"].weight.detach()
        self.eagle = nn.ModuleDict({
            "mix": Projection(2 * shape.width, shape.width), "h": nn.ModuleList([Block(shape)]),
            "ln_f": nn.LayerNorm(shape.width),
        })
        generator = torch.Generator().manual_seed(seed)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02, generator=generator)
        self.eagle["ln_f"].load_state_dict(parts["ln_f"].state_dict())

    def forward(self, features, ids, ahead):
        """Guesses of features 1..n-1 [rows, n - 1, d], from the true ones and then from its own, `ahead` times over.

        In the j-th, row t stands where a draft of j tokens after token t + 2 - j would: it reads the (j-1)-th guess of
        feature t, and sees the true features up to t + 1 - j. Its first j - 1 rows mean nothing.
        Source of the training on its own guesses: Zhang et al. 2024 (HASS), section 3.2.
        """
        followed = ids[:, 1:] if self.shifted else ids[:, :-1]
        features = features if self.fed else torch.zeros_like(features)
        given, guesses, pasts = features[:, :-1], [], []
        for _ in range(ahead):
            with torch.autocast("cpu", torch.bfloat16):
                x = self.eagle["mix"](torch.cat([given, self.table[followed]], -1)) + self.places[: given.shape[1]]
                block = self.eagle["h"][0]
                x = x + attend_ahead(block.attn, block.ln_1(x), pasts)
                x = x + block.mlp(block.ln_2(x))
                guesses.append(self.eagle["ln_f"](x).float())
            if self.fed:
                given = torch.cat([features[:, :1], guesses[-1][:, :-1]], 1)
        return guesses


def attend_ahead(attention, x, pasts):
    """Attention of the j-th rollout x [rows, n, d]; `pasts` holds keys and values of the j - 1 before and gets its own.

    Row t sees rows 0..t - j + 1 of the first, then one row of each later rollout up to its own.
    """
    rows, n, width = x.shape
    q, k, v = attention.c_attn(x).view(rows, n, 3, attention.heads, -1).permute(2, 0, 3, 1, 4)  # [rows, h, n, d/h]
    pasts.append((k, v))
    if len(pasts) == 1:
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        mixed = _mix_ahead(q, pasts)
    return attention.c_proj(mixed.transpose(1, 2).reshape(rows, n, width))


def _mix_ahead(q, pasts):
    (k, v), later = pasts[0], pasts[1:]
    n, scale = q.shape[2], q.shape[3] ** -0.5
    seen = torch.ones(n, n, dtype=torch.bool).tril(-len(later))
    old = (q @ k.transpose(2, 3) * scale).masked_fill(~seen, -1e4)  # [rows, h, n, n]
    moved = [[part.roll(len(later) - 1 - index, 2) for part in pair] for index, pair in enumerate(later)]
    own = [(q * key).sum(-1, keepdim=True) * scale for key, _ in moved]  # [rows, h, n, 1] each
    weights = torch.cat([old, *own], -1).float().softmax(-1).to(v.dtype)
    mixed = weights[..., :n] @ v
    for index, (_, value) in enumerate(moved):
        mixed = mixed + weights[..., n + index, None] * value
    return mixed


def eagle_loss(head, features, ids, log_p, settings):
    """What a rollout costs, the later ones weighted down: smooth L1 of the features, KL(p || q), chance of rejection.

    features [rows, n, d], ids [rows, n], log_p [rows, n, V]; settings: (rollouts, weight of each beside the one
    before, weight of the L1 term, weight of the rejections).
    Source: Li et al. 2024 (EAGLE), section 3.2, for the first two; Zhou et al. 2023 (DistillSpec), section 4.
    """
    ahead, later, feature_weight, overlap_weight = settings
    total = 0.0
    for j, guess in enumerate(head(features, ids, ahead)):
        guess, log_target = guess[:, j:], log_p[:, j + 1 :]
        log_q = F.linear(guess, head.table).log_softmax(-1)
        p = log_target.exp()
        divergence = (p * (log_target - log_q)).sum(-1).mean()
        rejection = 1 - torch.minimum(p, log_q.exp()).sum(-1).mean()
        near = F.smooth_l1_loss(guess, features[:, j + 1 :])
        total = total + later**j * (divergence + overlap_weight * rejection + feature_weight * near)
    return total


@torch.no_grad()
def overlaps(head, features, ids, log_p, ahead):
    """Mean sum of min(p, q) at each of `ahead` rollouts: acceptance on text that is given."""
    found = []
    for j, guess in enumerate(head(features, ids, ahead)):
        q = F.linear(guess[:, j:], head.table).softmax(-1)
        found.append(torch.minimum(log_p[:, j + 1 :].exp(), q).sum(-1).mean().item())
    return found
