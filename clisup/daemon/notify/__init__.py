"""Messages of `[[notify]]`: the daemon follows the journals and tells commands and addresses about events."""
