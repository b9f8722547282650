"""GPT-2 in torch, its tensors named and laid out as in `transformers`."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """The numbers that fix a model's tensors; `dropout` acts in training only."""

    layers: int
    width: int
    heads: int
    vocab_size: int = 2048
    context: int = 512
    dropout: float = 0.0


class Projection(nn.Module):
    """x @ weight + bias with weight [inputs, outputs]: GPT-2 stores its matrices this way round."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return F.linear(x, self.weight.t(), self.bias)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.c_attn = Projection(shape.width, 3 * shape.width)
        self.c_proj = Projection(shape.width, shape.width)

    def forward(self, x, past=None):
        rows, n, width = x.shape
        qkv = self.c_attn(x).view(rows, n, 3, self.heads, -1)  # [rows, n, d] -> [rows, n, 3, h, d/h]
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [rows, h, n, d/h]
        if past is not None:
            k, v = past.append(k, v)
        out = F.scaled_dot_product_attention(q.to(k.dtype), k, v, is_causal=n > 1).to(x.dtype)  # [rows, h, n, d/h]
        out = self.c_proj(out.transpose(1, 2).reshape(rows, n, width))  # [rows, n, d]
        return F.dropout(out, self.dropout, self.training)


class MLP(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.dropout = shape.dropout
        self.c_fc = Projection(shape.width, 4 * shape.width)
        self.c_proj = Projection(4 * shape.width, shape.width)

    def forward(self, x):
        return F.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")), self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(shape.width), Attention(shape)
        self.ln_2, self.mlp = nn.LayerNorm(shape.width), MLP(shape)

    def forward(self, x, past=None):
        x = x + self.attn(self.ln_1(x), past)
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Token ids [rows, n] to logits [rows, n, V]; the unembedding is the embedding (tied)."""

    def __init__(self, shape, seed=0):
        super().__init__()
        self.shape = shape
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(shape.vocab_size, shape.width),
                "wpe": nn.Embedding(shape.context, shape.width),
                "h": nn.ModuleList(Block(shape) for _ in range(shape.layers)),
                "ln_f": nn.LayerNorm(shape.width),
            }
        )
        self._init_weights(torch.Generator().manual_seed(seed))

    def _init_weights(self, generator):
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                deep = name.endswith("c_proj.weight")
                std = 0.02 / (2 * self.shape.layers) ** 0.5 if deep else 0.02
                nn.init.normal_(weight, std=std, generator=generator)

    def forward(self, ids, pasts=None, start=0):
        parts = self.transformer
        x = parts["wte"](ids) + parts["wpe"].weight[start : start + ids.shape[1]]  # [rows, n, d]
        x = F.dropout(x, self.shape.dropout, self.training)
        for layer, block in enumerate(parts["h"]):
            x = block(x, None if pasts is None else pasts[layer])
        return F.linear(parts["ln_f"](x), parts["wte"].weight)  # [rows, n, V]


class Past:
    """Keys and values of one layer for sampling, [rows, h, context, d/h] each, float32: twice as quick as bfloat16."""

    def __init__(self, rows, shape):
        size = (rows, shape.heads, shape.context, shape.width // shape.heads)
        self.k, self.v, self.length = torch.zeros(size), torch.zeros(size), 0

    def append(self, k, v):
        """Store n new positions and return all so far."""
        end = self.length + k.shape[2]
        self.k[:, :, self.length : end], self.v[:, :, self.length : end] = k, v
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]


@torch.no_grad()
def sample(model, prompts, length, generator):
    """Continue prompts [rows, n] to [rows, length] at temperature 1."""
    model.eval()
    rows, n = prompts.shape
    pasts = [Past(rows, model.shape) for _ in range(model.shape.layers)]
    ids = torch.empty(rows, length, dtype=torch.int64)
    ids[:, :n] = prompts
    logits = model(prompts, pasts)[:, -1]  # [rows, V]
    for place in range(n, length):
        probs = logits.float().softmax(-1)
        ids[:, place] = torch.multinomial(probs, 1, generator=generator)[:, 0]
        logits = model(ids[:, place : place + 1], pasts, start=place)[:, -1]
    return ids
