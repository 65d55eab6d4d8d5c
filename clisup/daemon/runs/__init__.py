"""Runs: each run is one CLI process, with a keeper, two spools, events for the journal, and an end."""
