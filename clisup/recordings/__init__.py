"""Recordings of turns, for `clisup record` and `clisup replay`: taken from a state directory, written, read and decoded."""
