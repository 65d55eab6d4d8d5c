"""Entry point of `python -I -m clisup.worker`."""

import sys

if __name__ == "__main__":
    try:
        from clisup.worker.app import main

        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
