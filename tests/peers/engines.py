"""The engines that are compared: each a function run(prompt, tokens, temperature, seed) -> list of new tokens.

All read the same folder, in float32, on one thread. None stops early and none cuts its rows (no top-k, no top-p).
"""

import json
from functools import partial
from pathlib import Path

import ctranslate2
import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models

from specnotes.decode import generate
from specnotes.dice import RandomDice
from specnotes.drafters import ModelDrafter
from specnotes.gpt2 import Config, random_tensors
from specnotes.pair import read_model, read_tokenizer

GAMMA = 3
GPT2_SMALL = Config(vocab_size=50257, max_length=1024, width=768, layers=12, heads=12)
NUMPY, SPECULATIVE = "NumPy plain", "NumPy speculative"
GENERATE, ASSISTED = "transformers generate", "transformers assisted generation"
CTRANSLATE2 = "CTranslate2 plain"

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()  # every assisted call would warn about the library's own arguments


def engines(target, draft, workspace):
    """({name: run}, the NumPy target): five engines for the folders target and draft, three where draft is None.

    workspace: an empty folder, for CTranslate2's own format.
    """
    model, peer = read_model(target), read_peer(target)
    runs = {NUMPY: partial(run_numpy, model, None)}
    runs[GENERATE] = partial(run_transformers, peer, None)
    runs[CTRANSLATE2] = partial(run_ctranslate2, convert(target, workspace), vocabulary(target))
    if draft is not None:
        runs[SPECULATIVE] = partial(run_numpy, model, ModelDrafter(read_model(draft)))
        runs[ASSISTED] = partial(run_transformers, peer, as_assistant(read_peer(draft)))
    return runs, model


def run_numpy(target, drafter, prompt, tokens, temperature, seed):
    """The loop of this package, plain where drafter is None."""
    dice = RandomDice(np.random.default_rng(seed))
    trace = generate(
        target, prompt, drafter, gamma=GAMMA, max_new_tokens=tokens, temperature=temperature, dice=dice
    )
    return list(trace.tokens)


def read_peer(folder):
    """The model of `transformers` in a folder, in float32 with its default attention."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def as_assistant(peer):
    """Set a model to draft GAMMA tokens in every pass.

    By default it would draft more after a full acceptance, and stop where its confidence is below .4.
    """
    peer.generation_config.update(
        num_assistant_tokens=GAMMA, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0
    )
    return peer


def run_transformers(target, assistant, prompt, tokens, temperature, seed):
    """`generate` of transformers, assisted where an assistant is given."""
    torch.manual_seed(seed)
    ids = torch.tensor([prompt])
    law = {"do_sample": False}
    if temperature:
        law = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    output = target.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, eos_token_id=None, pad_token_id=0,
        assistant_model=assistant, **law,
    )
    return output[0, len(prompt) :].tolist()


def convert(folder, workspace):
    """A float32 CTranslate2 generator on one thread, from a folder of transformers."""
    converted = Path(workspace) / "ctranslate2"
    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted), quantization="float32")
    return ctranslate2.Generator(
        str(converted), device="cpu", compute_type="float32", inter_threads=1, intra_threads=1
    )


def vocabulary(folder):
    """The tokens of a folder's tokenizer by their ids."""
    tokenizer = read_tokenizer(folder)
    return [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]


def run_ctranslate2(generator, names, prompt, tokens, temperature, seed):
    """CTranslate2's own loop; it takes tokens by their names."""
    ctranslate2.set_random_seed(seed)
    law = {"sampling_topk": 0, "sampling_temperature": temperature} if temperature else {"sampling_topk": 1}
    [result] = generator.generate_batch(
        [[names[token] for token in prompt]], max_length=tokens, min_length=tokens,
        include_prompt_in_result=False, **law,
    )
    return result.sequences_ids[0]


def write_random(folder, config=GPT2_SMALL, seed=0):
    """A folder with random weights of this shape that all engines read. Its tokens are named by their ids."""
    folder = Path(folder)
    folder.mkdir()
    tensors = random_tensors(config, seed)
    save_file(
        {f"transformer.{name}": tensor.astype(np.float32) for name, tensor in tensors.items()},
        folder / "model.safetensors", metadata={"format": "pt"},
    )
    entries = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
        "vocab_size": config.vocab_size, "n_positions": config.max_length, "n_embd": config.width,
        "n_layer": config.layers, "n_head": config.heads, "bos_token_id": 0, "eos_token_id": 0, "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(entries), encoding="utf-8")
    names = {str(index): index for index in range(config.vocab_size)}
    Tokenizer(models.WordLevel(names, unk_token="0")).save(str(folder / "tokenizer.json"))
    # CTranslate2's converter asks for the names of the special tokens.
    special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "0")
    special["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(special), encoding="utf-8")
    return folder
