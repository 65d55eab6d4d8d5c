"""Clients of the daemon: `clisup.client.sync` blocks, `clisup.client.aio` is for trio; docs/start/clients.md is the guide.

Begin with `sync.Client` or `aio.open_client`. `events` has the classes of events, `answers` those of approvals. Importing this package
loads nothing else, so that commands start fast.
"""
