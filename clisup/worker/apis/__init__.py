"""Requests to HTTP APIs by their vendors' SDKs, and their answers as events of the Anthropic Messages API."""
