"""The configuration: its model, the table of keys, origins, changes, schema; and what a session was opened with. Pure."""
