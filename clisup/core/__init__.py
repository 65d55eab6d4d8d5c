"""The pure core: rules that need no `await`, no clock, no socket and no process. Time, bytes and mappings come as arguments."""
