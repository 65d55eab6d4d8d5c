"""Backends: the rules of each CLI. Pure: an adapter says how its CLI is started, a decoder makes events of its output."""
