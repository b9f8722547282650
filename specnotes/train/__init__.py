"""How the embedded pair was made: corpus, tokenizer, target, draft, report (extra: train).

Run `python -m specnotes.train --help`. Nothing else in the package imports this.
"""
