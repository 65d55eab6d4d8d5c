"""Journals of the sessions: one recorder for each, the cache of the newest events, and what a bad disk does to them."""
