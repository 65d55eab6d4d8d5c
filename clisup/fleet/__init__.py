"""Boxes: other daemons that commands reach by name. Loaded only when a command names a box."""
