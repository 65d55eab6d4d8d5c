"""Attackers of the project's own: `make attack`."""
