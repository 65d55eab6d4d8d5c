"""Limits of turns: rate limits of accounts, slots of running turns, budgets."""
