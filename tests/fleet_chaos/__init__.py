"""`make fleet` and `make fleet-net`: boxes, agents and nodes that are killed and cut off, and what that costs."""
