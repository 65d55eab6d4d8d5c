"""Reading the configuration file."""

from __future__ import annotations

import tomllib

from clisup.core.config import Config, parse_config
from clisup.errors import ConfigurationError

__all__ = ["read_config"]


def read_config(path: str, *, required: bool) -> Config:
    """The configuration in `path`; all defaults where an optional file is missing. Raises `ConfigurationError`."""
    try:
        with open(path, "rb") as file:
            raw = tomllib.load(file)
    except FileNotFoundError:
        if required:
            raise ConfigurationError(
                f"cannot read {path}, because there is no such file", hint="correct --config"
            ) from None
        return parse_config({})
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"cannot read {path}, because it is not UTF-8 at byte {error.start}", hint="save it as UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"cannot read {path}, because it is not TOML: {error}", hint="correct that line"
        ) from None
    except (RecursionError, ValueError) as error:  # what the TOML reader lets out: a number of 5,000 digits, say
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else "one of its numbers is too long"
        raise ConfigurationError(f"cannot read {path}, because {reason}", hint="correct it") from None
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}, because of: {error.strerror}", hint="check its permissions"
        ) from None
    return parse_config(raw, source=path)
