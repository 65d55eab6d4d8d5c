"""Doors: processes that serve the sessions of the daemon to other programs, each in the protocol of those programs."""
