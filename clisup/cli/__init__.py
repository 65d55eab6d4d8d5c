"""The `clisup` command: one file for each command, loaded only when it is asked for."""
