"""One CLI process: its keeper, its spools, its events on their way into the journal, and its end."""
