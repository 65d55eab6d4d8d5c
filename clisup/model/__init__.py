"""The model: events, usage, and what a turn, a journal line and a CLI's last word are. Pure."""
