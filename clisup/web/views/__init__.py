"""View models: pure functions of events and of rows of the daemon. Templates draw what they return."""
