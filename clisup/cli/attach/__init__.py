"""A session on a terminal: its answer above, and a line that is typed below."""
