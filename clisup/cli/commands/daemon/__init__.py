"""Commands about the daemon."""
