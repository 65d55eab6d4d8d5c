"""`python -m clisup`."""

import sys

from clisup.cli.main import main

sys.exit(main())
