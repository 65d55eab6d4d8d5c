"""Handlers of requests: each asks the daemon, calls a view model, and renders a template."""
