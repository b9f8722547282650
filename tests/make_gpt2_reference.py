"""Write tests/fixtures/gpt2: two tiny random GPT-2s and what `transformers` computes with them.

    python tests/make_gpt2_reference.py        (needs torch and transformers)

`tied` is a causal language model with its `transformer.` prefix; `bare` has an untied head and no prefix.
The matrices are larger than at initialisation, so that attention is far from uniform.
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

FOLDER = Path(__file__).parent / "fixtures" / "gpt2"
PROMPT = [7, 0, 3, 3, 9, 1, 12, 5, 0, 10]
SCALE = 0.4


def make(name, tied, seed):
    config = GPT2Config(vocab_size=13, n_positions=16, n_embd=12, n_layer=2, n_head=3, tie_word_embeddings=tied,
                        bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(SCALE * torch.randn(weight.shape, generator=generator)).copy_(weight.half())
        logits = model(torch.tensor([PROMPT])).logits[0]
        features = model.transformer(torch.tensor([PROMPT])).last_hidden_state[0]
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    entries = config.to_dict() | {"architectures": ["GPT2LMHeadModel"]}
    entries.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")
    save_file(tensors_of(model, tied), folder / "model.safetensors", metadata={"format": "pt"})
    return {"tokens": PROMPT, "logits": rounded(logits), "features": rounded(features)}


def tensors_of(model, tied):
    tensors = {key: value.half().contiguous() for key, value in model.state_dict().items()}
    if tied:
        tensors.pop("lm_head.weight")
        return tensors
    return {key.removeprefix("transformer."): value for key, value in tensors.items()}


def rounded(array):
    return np.round(array.double().numpy(), 6).tolist()


if __name__ == "__main__":
    reference = {name: make(name, tied, seed) for name, tied, seed in (("tied", True, 1), ("bare", False, 2))}
    (FOLDER / "reference.json").write_text(json.dumps(reference) + "\n")
