"""Search and reader of the scrub lists. The daemon does not start without lists: there is no fallback to an empty list.

The directories are tried in this order. The first existing directory decides alone for clisup's own lists.

1. the directory in the configuration (`[daemon] scrub_lists`); then no other is tried
2. `/etc/clisup/scrub_lists`, the administrator's
3. `scrub_lists` inside the installed package
4. `scrub_lists` beside the package in a checkout (an editable install has no copy inside the package)

The package of another adapter brings the lists of its own kind, in `scrub_lists` beside the adapter's module. They count if
the directory above has no list of that kind, so an administrator can replace them, and no package replaces clisup's own.
"""

from __future__ import annotations

import re
import sys
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
    kind: str,
    override: Path | None = None,
    *,
    module: str = __name__,
    search: Sequence[Path] | None = None,
    known: Known | None = None,
) -> RuleSet:
    """Return the rules for one backend kind: the common lists and its own, with their includes.

    `module` is the name of the adapter's loaded module. `known` are the files already read for other kinds: each file is
    read once, and new files are added. Raises `ConfigurationError` that names the directories, the file or the line, and
    the fix.
    """
    directory = lists_directory(kind, override, module=module, search=search)
    brought = _brought(kind, directory, module)
    read = {} if known is None else known
    own = _read(directory, "common", read) + _read(brought or directory, kind, read, includes=directory)
    rules = tuple(rule for part in own for rule in part.rules)
    stamps = tuple(part.checked for part in own if part.checked is not None)
    return RuleSet(rules, tuple(pair for part in own for pair in part.pairs), stamps)


def lists_directory(
    kind: str, override: Path | None = None, *, module: str = __name__, search: Sequence[Path] | None = None
) -> Path:
    """Return the directory whose lists decide for this kind, beside those that the adapter's package brings.

    A directory that holds some lists but not all is an error, and the search does not go on. An administrator's
    stricter lists must not be skipped because one file is missing. Raises `ConfigurationError` if there is no
    directory, or if the directory is incomplete.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", kind) or kind == "common":
        raise ConfigurationError("cannot load scrub lists, because the kind is no list name", hint="correct `kind`")
    places = (override,) if override is not None else search_path() if search is None else tuple(search)
    for directory in places:
        present = _lists_in(directory)
        if override is None and not present:
            continue
        names = list_names("common") if _brought(kind, directory, module) else list_names("common", kind)
        if missing := [name for name in names if name not in present]:
            raise _incomplete(directory, missing, f"add them, or: {_HINT}")
        return directory
    looked = ", ".join(str(place) for place in places)
    raise ConfigurationError(f"cannot start without scrub lists, because there are none in {looked}", hint=_HINT)


def _brought(kind: str, directory: Path, module: str) -> Path | None:
    """Return the directory of the adapter's package that holds the lists of this kind, or None for `directory` itself.

    Raises `ConfigurationError` if the package of another project brings no lists, or not all of them.
    """
    file = getattr(sys.modules[module], "__file__", None)
    names = list_names(kind)
    if module.partition(".")[0] == "clisup" or file is None or not _lists_in(directory).isdisjoint(names):
        return None
    brought = Path(file).parent / "scrub_lists"
    present = _lists_in(brought)
    if missing := [name for name in names if name not in present]:
        raise _incomplete(brought, missing, "add them to the package that brings the adapter, or reinstall it")
    return brought


def _incomplete(directory: Path, missing: Sequence[str], hint: str) -> ConfigurationError:
    message = f"cannot use the scrub lists in {directory}, because these are missing: {', '.join(missing)}"
    return ConfigurationError(message, hint=hint)


def list_names(*kinds: str) -> tuple[str, ...]:
    """Return the names of the files that hold the lists of these kinds: three for each."""
    return tuple(f"{kind}.{rule_kind}" for kind in kinds for rule_kind in KINDS)


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


def _read(directory: Path, name: str, known: Known, *, includes: Path | None = None) -> list[ScrubList]:
    """Return the three lists of a name, each after those that it includes: a list's own lines win over included lines."""
    parts: list[ScrubList] = []
    for kind in KINDS:
        own = _parsed(directory, name, kind, known)
        for other in own.includes:
            included = _parsed(includes or directory, other, kind, known)
            if included.includes:
                raise ConfigurationError(
                    f"cannot use the scrub list {(includes or directory) / f'{other}.{kind}'}, because an included list "
                    "includes another",
                    hint="write the lines out",
                )
            parts.append(included)
        parts.append(own)
    return parts


def _parsed(directory: Path, name: str, kind: RuleKind, known: Known) -> ScrubList:
    path = directory / f"{name}.{kind}"
    if (parsed := known.get(path)) is None:
        parsed = known[path] = parse_list(name, kind, _text(path), origin=str(path))
    return parsed


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
