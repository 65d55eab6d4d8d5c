"""Commands of `clisup`. `clisup.cli.root` names the file of each command."""
