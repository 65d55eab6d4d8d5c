"""Journals of the sessions: a recorder for each session, the cache of the newest events, and the effects of a bad disk."""
