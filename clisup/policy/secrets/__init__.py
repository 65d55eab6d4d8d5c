"""Removal of secrets and control characters from text before it is shown. Pure."""
