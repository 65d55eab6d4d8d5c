"""Git worktrees of sessions: making, comparing, landing, removing."""
