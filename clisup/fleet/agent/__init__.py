"""Agent of the fleet: the process that stands beside the daemon and speaks to the engine."""
