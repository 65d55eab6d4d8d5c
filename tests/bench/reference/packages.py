"""What a daemon imports of others, as it does that, and an event loop with nothing to do: nobody built on them starts sooner."""

import gc
import os

gc.disable()

from clisup.host.process.lean_imports import import_lean  # noqa: E402

import_lean()

import msgspec  # noqa: E402, F401
import trio  # noqa: E402

trio.run(trio.sleep, 0)
os._exit(0)  # a daemon does not end here
