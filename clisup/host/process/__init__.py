"""Processes: start, trees, cgroups, evidence of work, and memory."""
