"""Limits of turns: rate limits of accounts, places among the running turns, budgets."""
