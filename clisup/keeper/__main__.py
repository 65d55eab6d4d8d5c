"""Start of a keeper: `python -I -S clisup/keeper/__main__.py`. The argument `fork` starts the zygote, which forks
keepers; `helper` starts the guard of a helper program.

With `-I -S` the interpreter reads no site-packages, so this file adds the directory of its own package, after the
standard library.
"""

from __future__ import annotations

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from clisup.keeper.main import main

if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
