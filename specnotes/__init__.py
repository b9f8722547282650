"""specnotes: speculative decoding in code small enough to read, and exact enough to prove things with."""

__version__ = "0.1.0"
