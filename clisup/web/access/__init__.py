"""Access to the pages: tokens, roles, and the checks of every request."""
