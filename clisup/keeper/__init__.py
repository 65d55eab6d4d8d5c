"""Keeper: the process that owns the pipes of one CLI and outlives the daemon. Imports the standard library alone."""
