"""opencode: how it is started, and its JSON events as events of clisup."""
