"""Entry point of the command `clisup` and of `python -m clisup`."""

import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C, as `clisup.errors.EXIT_INTERRUPTED`, which is not imported yet."""


def main() -> int:
    """Run the command. Ctrl-C ends it without a traceback, also while modules are imported."""
    try:
        from clisup.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseExceptionGroup as group:  # a nursery wraps the interrupt
        if group.split(KeyboardInterrupt)[1] is not None:
            raise
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
