"""Commands that serve a protocol of other programs."""
