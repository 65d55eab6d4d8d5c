"""The demo CLI: a small process that speaks claude's stream-json from a script, to try clisup without a login.

`python -m clisup.demo --help` describes the script language. The package imports only the standard library and
`clisup.stream_json`, so that it starts in milliseconds and runs as a plain file.
"""

VERSION = "1.0.0"
"""Version of the demo CLI, for `--version` and the init frame."""
