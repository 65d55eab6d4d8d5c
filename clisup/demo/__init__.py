"""The demo CLI: a real process that speaks claude's stream-json from a script, for trying clisup without any login.

`python -m clisup.demo --help` teaches the script language. The package imports the standard library only and nothing else
of clisup, so that it starts in a few milliseconds and runs as a file of its own, wherever clisup is installed.
"""

VERSION = "1.0.0"
"""The demo CLI's own version: what `--version` and the init frame say. It is no claude version."""
