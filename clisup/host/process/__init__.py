"""Processes: starting them, their trees, cgroups, evidence of work, and memory."""
