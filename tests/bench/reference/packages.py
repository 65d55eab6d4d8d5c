"""The packages that a daemon imports, and an event loop with nothing to do: no program built on them starts sooner."""

import os

import msgspec  # noqa: F401
import pydantic  # noqa: F401
import trio

trio.run(trio.sleep, 0)
os._exit(0)  # a daemon does not end here
