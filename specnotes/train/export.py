"""The finished pair as a folder: two models that `transformers` loads, a tokenizer, checksums, a report."""

import hashlib
import json
import os
from pathlib import Path

import torch
from safetensors.torch import save_file

from specnotes.train.tokens import END


def config_of(shape, end_id):
    """What `transformers` and specnotes read from config.json."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": shape.vocab_size,
        "n_positions": shape.context,
        "n_embd": shape.width,
        "n_layer": shape.layers,
        "n_head": shape.heads,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": True,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "dtype": "float16",
    }


def round_to_half(model):
    """Round the weights in place to what float16 can hold, so that what is measured is what is shipped."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.half())
    return model


def write_model(model, folder, end_id):
    """config.json and model.safetensors (float16, tied head left out) in `folder`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.json", json.dumps(config_of(model.shape, end_id), indent=2) + "\n")
    write_weights(model, folder)


def write_weights(model, folder):
    """model.safetensors (float16) in `folder`: the old file or the whole new one."""
    folder = Path(folder)
    weights = {name: weight.half().contiguous() for name, weight in model.state_dict().items()}
    fresh = folder / "model.new"
    save_file(weights, fresh, metadata={"format": "pt"})
    os.replace(fresh, folder / "model.safetensors")


def write_tokenizer(tokenizer, folder, context):
    """tokenizer.json, and the small file that lets `transformers` load it as a fast tokenizer."""
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "unk_token": END,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    write_text(Path(folder) / "tokenizer.json", tokenizer.to_str() + "\n")
    write_text(Path(folder) / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")


def write_checksums(folder):
    """SHA256SUMS of every other file below `folder`, in the form `sha256sum --check` reads."""
    folder = Path(folder)
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "SHA256SUMS"
    ]
    write_text(folder / "SHA256SUMS", "".join(lines))


def write_report(report, folder):
    """training.json: data, recipe, seeds, steps, losses, alpha; what a model card needs."""
    write_text(Path(folder) / "training.json", json.dumps(report, indent=1) + "\n")


def write_text(path, text):
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
