"""A byte-level BPE tokenizer, and token streams cut into training windows."""

import numpy as np
from tokenizers import ByteLevelBPETokenizer, Tokenizer

END = "<|endoftext|>"


def train_tokenizer(texts, vocab_size):
    """A byte-level BPE tokenizer of `vocab_size` entries, id 0 being the end of a work."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=vocab_size, min_frequency=2, special_tokens=[END], show_progress=False)
    if bpe.get_vocab_size() != vocab_size:
        raise ValueError(f"vocab_size: {vocab_size}, but the texts give only {bpe.get_vocab_size()} entries")
    return Tokenizer.from_str(bpe.to_str())


def encode(tokenizer, texts):
    """All texts as one stream of token ids [N], the end token after each."""
    stream = []
    for encoding in tokenizer.encode_batch(list(texts)):
        stream += encoding.ids + [tokenizer.token_to_id(END)]
    return np.array(stream, dtype=np.int64)


def windows(stream, size):
    """The stream cut into [n, size + 1] windows that share one token: inputs and their next tokens.

    >>> windows(np.arange(6), 2).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    count = (len(stream) - 1) // size
    if count < 1:
        raise ValueError(f"stream: {len(stream)} tokens, expected at least {size + 1}")
    starts = np.arange(count)[:, None] * size
    return stream[starts + np.arange(size + 1)]


def batch(stream, size, rows, step, seed):
    """Windows [rows, size + 1] of training step `step`, a function of its arguments alone.

    Each epoch shifts the cuts and shuffles the windows anew, so a resumed run sees the same batches.
    """
    per_epoch = ((len(stream) - 1 - size) // size) // rows
    if per_epoch < 1:
        raise ValueError(f"stream: {len(stream)} tokens, expected at least {(rows + 1) * size + 1}")
    epoch, place = divmod(step, per_epoch)
    rng = np.random.default_rng([seed, epoch])
    shift = int(rng.integers(size))
    order = rng.permutation((len(stream) - 1 - size) // size)[place * rows : (place + 1) * rows]
    return stream[shift + order[:, None] * size + np.arange(size + 1)]


def shuffled(count, rows, step, seed):
    """Which of `count` windows step `step` takes, [rows]: each at most once an epoch, in an order drawn anew.

    >>> sorted(np.concatenate([shuffled(6, 2, step, seed=0) for step in (3, 4, 5)]).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    epoch, place = divmod(step, count // rows)
    return np.random.default_rng([seed, epoch, 1]).permutation(count)[place * rows : (place + 1) * rows]
