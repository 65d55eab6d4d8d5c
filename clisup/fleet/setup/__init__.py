"""Foundation of a fleet: its folder, the configuration of its nodes, keys and certificates."""
