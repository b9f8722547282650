"""The same weights through other engines: `make peers` checks that they write the same text, and times them."""
