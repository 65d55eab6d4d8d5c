"""The entry point, as `python -m clisup.demo` and as a plain file: `python -I -S .../clisup/demo/__main__.py`."""

import sys

if not __package__:
    # Run as a file, under -I -S: no site-packages, no working directory in sys.path. The package's own root is appended,
    # not put in front, so that nothing which lies beside clisup can shadow the standard library.
    sys.path.append(__file__.rpartition("/clisup/demo/")[0] or ".")

from clisup.demo.app import main

if __name__ == "__main__":
    main(sys.argv[1:])
