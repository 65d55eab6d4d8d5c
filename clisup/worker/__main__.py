"""Entry point of `python -I -m clisup.worker`."""

import sys

from clisup.worker.app import main

if __name__ == "__main__":
    main(sys.argv[1:])
