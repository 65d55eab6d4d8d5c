"""What a session's journal says, folded: queue, turns, totals, budget. Pure."""
