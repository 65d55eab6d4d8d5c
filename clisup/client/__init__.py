"""Clients of the daemon: `clisup.client.sync` blocks, `clisup.client.aio` is for trio. Both speak docs/protocol.md.

Importing this package loads nothing else, so that the light commands stay light.
"""
