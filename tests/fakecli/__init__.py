"""The fake CLI of the tests: the demo CLI, with directives for everything that a supervisor must survive.

Daemons of the tests start it as their demo backend (`COMMAND`). `python -m tests.fakecli --help` lists all directives.
"""

import sys

__all__ = ["COMMAND"]

COMMAND = (sys.executable, "-I", "-S", __file__.replace("__init__.py", "__main__.py"))
"""The command as the demo adapter would start it: from any directory, and without site-packages."""
