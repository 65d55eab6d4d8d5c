"""Approvals: requests of a CLI to use a tool, and the answers of rules and clients."""
