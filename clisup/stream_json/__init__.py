"""claude's stream-json as a CLI writes it: frames, lines, and transcripts. The demo CLI and the workers share it.

The standard library alone, so that the demo CLI starts in a few milliseconds.
"""
