"""Secrets and control characters leave text before anybody sees it. Pure."""
