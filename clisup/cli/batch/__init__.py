"""`clisup batch`: many prompts, some of them at once."""
