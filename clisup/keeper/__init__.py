"""One file: the keeper, a process of its own. It imports nothing of the rest and nothing imports it."""
