"""Commands: one file for each, in the groups of `clisup --help`."""
