"""Entry point of `python -m clisup.demo`, and of the plain file: `python -I -S .../clisup/demo/__main__.py`."""

import sys

if not __package__:
    # A file under -I -S has neither site-packages nor its directory in sys.path. The package's root is appended, so that
    # nothing beside clisup can shadow the standard library.
    sys.path.append(__file__.rpartition("/clisup/demo/")[0] or ".")

if __name__ == "__main__":
    try:
        from clisup.demo.app import main

        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
