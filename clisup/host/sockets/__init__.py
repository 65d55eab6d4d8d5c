"""Sockets: the daemon's listener, socket activation, and the peers of connections."""
