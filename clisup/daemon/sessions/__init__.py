"""Sessions: the registry, and the queue of prompts, the turns, the settings and the recorder of each session."""
