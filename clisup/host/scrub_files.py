"""Search and reader of the scrub lists. The daemon does not start without lists: there is no fallback to an empty list.

The directories are tried in this order. The first existing directory decides alone: lists of two directories never mix.

1. the directory in the configuration (`[daemon] scrub_lists`); then no other is tried
2. `/etc/clisup/scrub_lists`, the administrator's
3. `scrub_lists` inside the installed package
4. `scrub_lists` beside the package in a checkout (an editable install has no copy inside the package)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from clisup.errors import ConfigurationError
from clisup.policy.environment.scrub import RuleKind, RuleSet, ScrubList
from clisup.policy.environment.scrub_list import parse_list

SYSTEM_DIRECTORY = Path("/etc/clisup/scrub_lists")
KINDS: tuple[RuleKind, ...] = ("allow", "scrub", "deny")
MAX_LIST_BYTES = 1_048_576

Known = dict[Path, ScrubList]

_PACKAGE = Path(__file__).resolve().parent.parent
_HINT = "reinstall clisup, or name a directory with complete lists as scrub_lists under [daemon]"


def search_path() -> tuple[Path, ...]:
    """Return the directories to search in order, if the configuration names no directory."""
    return (SYSTEM_DIRECTORY, _PACKAGE / "scrub_lists", _PACKAGE.parent / "scrub_lists")


def load_rules(
    kind: str, override: Path | None = None, *, search: Sequence[Path] | None = None, known: Known | None = None
) -> RuleSet:
    """Return the rules for one backend kind: the common lists and its own, with their includes.

    `known` are the files already read for other kinds: each file is read once, and new files are added. Raises
    `ConfigurationError` that names the directories, the file or the line, and the fix.
    """
    directory = lists_directory(kind, override, search=search)
    read = {} if known is None else known
    parts = [
        part for name in ("common", kind) for rule_kind in KINDS for part in _read(directory, name, rule_kind, read)
    ]
    rules = tuple(rule for part in parts for rule in part.rules)
    stamps = tuple(part.checked for part in parts if part.checked is not None)
    return RuleSet(rules, tuple(pair for part in parts for pair in part.pairs), stamps)


def lists_directory(kind: str, override: Path | None = None, *, search: Sequence[Path] | None = None) -> Path:
    """Return the directory whose lists decide for this kind.

    A directory that holds some lists but not all is an error, and the search does not go on. An administrator's
    stricter lists must not be skipped because one file is missing. Raises `ConfigurationError` if there is no
    directory, or if the directory is incomplete.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", kind) or kind == "common":
        raise ConfigurationError("cannot load scrub lists, because the kind is no list name", hint="correct `kind`")
    places = (override,) if override is not None else search_path() if search is None else tuple(search)
    for directory in places:
        present = _lists_in(directory)
        missing = [name for name in list_names(kind) if name not in present]
        if not missing:
            return directory
        if override is not None or present:
            message = f"cannot use the scrub lists in {directory}, because these are missing: {', '.join(missing)}"
            raise ConfigurationError(message, hint=f"add them, or: {_HINT}")
    looked = ", ".join(str(place) for place in places)
    raise ConfigurationError(f"cannot start without scrub lists, because there are none in {looked}", hint=_HINT)


def list_names(kind: str) -> tuple[str, ...]:
    """Return the names of the six files that a directory must hold for this kind."""
    return tuple(f"{name}.{rule_kind}" for name in ("common", kind) for rule_kind in KINDS)


def _lists_in(directory: Path) -> set[str]:
    """Return the names of the lists in a directory, empty if the directory is missing.

    An unreadable directory is an error.
    """
    try:
        return {path.name for path in directory.iterdir() if path.suffix[1:] in KINDS}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        message = f"cannot look for scrub lists in {directory}, because of {error.strerror}"
        raise ConfigurationError(message, hint="let the daemon's user read it, or remove it") from error


def _read(directory: Path, name: str, kind: RuleKind, known: Known, *, included: bool = False) -> list[ScrubList]:
    """Return one file, after its includes: a list's own lines win over included lines."""
    path = directory / f"{name}.{kind}"
    if (parsed := known.get(path)) is None:
        parsed = known[path] = parse_list(name, kind, _text(path), origin=str(path))
    if included and parsed.includes:
        message = f"cannot use the scrub list {path}, because an included list includes another"
        raise ConfigurationError(message, hint="write the lines out")
    return [part for other in parsed.includes for part in _read(directory, other, kind, known, included=True)] + [
        parsed
    ]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LIST_BYTES + 1)
        if len(data) > MAX_LIST_BYTES:
            raise ConfigurationError(f"cannot use the scrub list {path}, because it is larger than 1 MiB", hint=_HINT)
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"cannot use the scrub list {path}, because it is not UTF-8", hint=_HINT) from error
    except OSError as error:
        raise ConfigurationError(f"cannot read the scrub list {path}, because {error.strerror}", hint=_HINT) from error
