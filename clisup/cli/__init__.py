"""Command line of clisup. The file of a command is loaded only when the command is used."""
