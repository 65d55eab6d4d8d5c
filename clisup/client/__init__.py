"""Clients of the daemon: `clisup.client.sync` blocks, `clisup.client.aio` is for trio; docs/clients.md is the guide.

`sync.Client` and `aio.open_client` are where to begin; `events` has what comes out of their iterators, `answers` what an approval is
and is answered with. Importing this package loads nothing else, so that the light commands stay light.
"""
