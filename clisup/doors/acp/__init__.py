"""`clisup acp`: an agent of the Agent Client Protocol for editors, over every backend of the daemon."""
