"""Recordings of turns: taken from a state directory, kept as files, read again. For `clisup record` and `clisup replay`."""
