"""Removal of secrets and control characters from text to show. Pure."""
