"""specnotes: speculative decoding in code small enough to read, and exact enough to prove things with.

Start with `rules` (accept or replace a drafted token), `decode` (the one loop), `law` (the exact law of
anything that asks dice) and `theory` (closed forms). A first decode:

    from specnotes.decode import generate
    from specnotes.drafters import ModelDrafter
    from specnotes.pair import load_pair

    pair = load_pair()
    prompt = pair.tokenizer.encode("To be, or not to be").ids
    trace = generate(pair.target, prompt, ModelDrafter(pair.draft), gamma=3, max_new_tokens=50)
    print(pair.tokenizer.decode(list(trace.tokens)), trace.tokens_per_pass)
"""

__version__ = "0.1.0"
