"""clisup: a supervisor daemon for CLI model backends."""

__version__ = "0.2.0"
