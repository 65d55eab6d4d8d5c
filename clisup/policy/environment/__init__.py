"""Environment of a CLI, built from empty by lists with reasons. Pure."""
