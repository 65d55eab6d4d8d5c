"""Commands that serve other protocols. Loaded only when a command needs them."""
