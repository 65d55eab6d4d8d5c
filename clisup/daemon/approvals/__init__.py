"""Approvals: questions of a CLI, and the answers of rules and clients."""
