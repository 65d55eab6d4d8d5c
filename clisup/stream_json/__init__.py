"""Claude's stream-json as a CLI writes it: frames, lines and transcripts. The demo CLI and the workers share it.

The modules import the standard library only, so that the demo CLI starts in a few milliseconds.
"""
