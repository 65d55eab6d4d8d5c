"""Model: events, usage, turns, journal lines and terminal frames of a CLI. Pure."""
