"""Agents that speak the Agent Client Protocol, version 1."""
