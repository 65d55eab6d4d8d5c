"""Sessions: the registry of all, and for each one its queue of prompts, its turns, its settings and its recorder."""
