"""`clisup status`: with few imports, because people and prompts of shells run it all the time."""
