"""Folds of a session's journal: queue, turns, totals, budget. Pure."""
