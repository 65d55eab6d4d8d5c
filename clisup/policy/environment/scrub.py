"""Environment of a CLI: built from empty, by lists with a reason on every line.

An inherited variable passes only if a line names it. Three kinds of list decide: `allow` (inherited), `scrub` (only set
on purpose, by name) and `deny` (never, from no source). The first match wins, in this order:

    deny, scrub by exact name, allow by exact name, scrub by pattern, allow by pattern, else dropped as "unlisted"

So a list can scrub a pattern such as `CLAUDE_*` and allow one harmless name of it, but never the other way round. Deny
and scrub ignore case, so that `ld_preload` cannot bypass `LD_*`. Allow compares case exactly.

Pure: the caller passes the daemon's environment and the rules. No value ever reaches an error, a repr or a report.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, Protocol

from msgspec import Struct

from clisup.errors import ClisupError, ConfigurationError, UsageError

RuleKind = Literal["allow", "scrub", "deny"]
Named = tuple[tuple[str, str], ...]

MAX_NAME = 256
MAX_ENTRY_BYTES = 131_072  # Linux MAX_ARG_STRLEN: execve refuses a longer "NAME=value\0" with E2BIG
# half of the space that execve has for argv and environment together under the usual 8 MiB stack
MAX_TOTAL_BYTES = 1_048_576
MARKER_PREFIX = "CLISUP_"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
MIN_PREFIX = 3
_SET = ("backend", "env", "request", "marker")  # sources of a value that was set on purpose, weakest first


class Secret(Protocol):
    """Value without a string form, such as pydantic's `SecretStr`."""

    def get_secret_value(self) -> str:
        """Return the value itself."""


class Rule(Struct, frozen=True):
    """Line of a list. `pattern` is a name, or a prefix with a final `*`; `line` is the line number in the file."""

    pattern: str
    kind: RuleKind
    list_name: str
    line: int
    reason: str
    source: str

    @property
    def id(self) -> str:
        """Return the stable name for reports and errors, e.g. `claude.scrub:ANTHROPIC_*`."""
        return f"{self.list_name}.{self.kind}:{self.pattern}"


class Pair(Struct, frozen=True):
    """Endpoint and its credentials. A CLI never gets only a part of a pair while the rest is held back."""

    endpoint: str
    credentials: tuple[str, ...]
    list_name: str
    line: int
    reason: str
    source: str

    @property
    def id(self) -> str:
        """Return the stable name, as `Rule.id`, e.g. `claude.pair:ANTHROPIC_BASE_URL`."""
        return f"{self.list_name}.pair:{self.endpoint}"


class Stamp(Struct, frozen=True):
    """Source and date of the last check of a list: `# checked: claude 2.1.329, 2026-11-20`."""

    list_name: str
    source: str
    date: str

    def version_of(self, name: str) -> str | None:
        """Return the version of the CLI `name` in the source, or None for another source."""
        found, _, version = self.source.rpartition(" ")
        return version if found == name and version[:1].isdigit() else None


class ScrubList(Struct, frozen=True):
    """Parsed file of a list. `includes` are lists of the same kind, which the loader puts before this list."""

    rules: tuple[Rule, ...]
    pairs: tuple[Pair, ...] = ()
    includes: tuple[str, ...] = ()
    checked: Stamp | None = None


class EnvReport(Struct, frozen=True):
    """Report on each variable: sorted `(name, rule id)` pairs, never a value.

    `kept` and `dropped` list the daemon's own variables, `set` lists the variables that were set on purpose. A name can
    be in `dropped` and `set` at once, if the daemon's value was held back and another value was set.
    """

    kept: Named
    dropped: Named
    set: Named


ADAPTERS = ("backend", "marker")
"""Rules of names that the adapter or clisup itself sets, perhaps to nothing. No such name is a key or an endpoint of a
user."""


LAUNCHERS = (
    "ASDF_*",
    "VOLTA_*",
    "MISE_*",
    "NVM_*",
    "FNM_*",
    "NODENV_*",
    "PYENV_*",
    "RBENV_*",
    "NIX_*",
    "PNPM_HOME",
    "BUN_INSTALL",
)
"""Variables that a version manager's shim needs to find the program behind it."""
_MOST_NAMES = 8


def held_back_like(report: EnvReport, patterns: Iterable[str]) -> list[str]:
    """Return the variables with these names that the daemon has and the CLI does not get, unless a rule forbids them."""
    patterns = [*patterns]
    names = (name for name, rule in report.dropped if ".deny:" not in rule)
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)][:_MOST_NAMES]


def held_back(
    report: EnvReport, pairs: Iterable[Pair], keys: Collection[str] | None, places: Iterable[str] = ()
) -> list[str]:
    """Return the keys, their endpoints and places that the daemon has and the CLI does not get.

    `keys` are the CLI's variables for a login; None means all keys of the pairs. `places` are patterns of variables that name
    another store or provider of a login.
    """
    pairs = [pair for pair in pairs if keys is None or {*keys} & {*pair.credentials}]
    known = keys if keys is not None else [key for pair in pairs for key in pair.credentials]
    put = {name for name, how in report.set if how not in ADAPTERS}
    dropped = {name for name, _ in report.dropped} - put
    named = [*known, *(pair.endpoint for pair in pairs), *(n for n in held_back_like(report, places) if n in dropped)]
    return [name for name in dict.fromkeys(named) if name in dropped]


class _Index:
    """Index of the rules of one kind by name. Later rules win.

    Exact names are in a dict. Prefixes are found by their initial and their length.
    """

    __slots__ = ("exact", "lengths", "prefixes")

    def __init__(self, rules: Iterable[Rule], *, fold: bool) -> None:
        self.exact: dict[str, Rule] = {}
        self.prefixes: dict[str, Rule] = {}
        for rule in rules:
            pattern = rule.pattern.upper() if fold else rule.pattern
            if pattern.endswith("*"):
                self.prefixes[pattern[:-1]] = rule
            else:
                self.exact[pattern] = rule
        self.lengths: dict[str, list[int]] = {}
        for prefix in sorted(self.prefixes, key=len, reverse=True):
            lengths = self.lengths.setdefault(prefix[:1], [])
            if len(prefix) not in lengths:
                lengths.append(len(prefix))

    def by_pattern(self, name: str) -> Rule | None:
        """Return the rule of the longest matching prefix."""
        for length in self.lengths.get(name[:1], ()):
            rule = self.prefixes.get(name[:length])
            if rule is not None:
                return rule
        return None


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules for one backend kind: the `common` rules first, then the rules of the kind."""

    rules: tuple[Rule, ...]
    pairs: tuple[Pair, ...] = ()
    stamps: tuple[Stamp, ...] = ()
    _allow: _Index = field(init=False, repr=False, compare=False)
    _scrub: _Index = field(init=False, repr=False, compare=False)
    _deny: _Index = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for kind in ("allow", "scrub", "deny"):
            index = _Index((rule for rule in self.rules if rule.kind == kind), fold=kind != "allow")
            object.__setattr__(self, f"_{kind}", index)

    def denied(self, name: str) -> Rule | None:
        """Return the rule that keeps this name out of every child, from any source, or None."""
        folded = name.upper()
        return self._deny.exact.get(folded) or self._deny.by_pattern(folded)

    def verdict(self, name: str) -> Rule | None:
        """Return the rule for an inherited variable of this name. Return None if no list names the variable."""
        folded = name.upper()
        return (
            self._deny.exact.get(folded)
            or self._deny.by_pattern(folded)
            or self._scrub.exact.get(folded)
            or self._allow.exact.get(name)
            or self._scrub.by_pattern(folded)
            or self._allow.by_pattern(name)
        )

    def held_back_by(self, pattern: str) -> list[Rule]:
        """Return the scrub and deny rules that share at least one variable name with the prefix pattern."""
        prefix = pattern.rstrip("*").upper()
        return [rule for rule in self.rules if rule.kind != "allow" and _overlap(prefix, rule.pattern.upper())]


def check_configuration(
    rules: RuleSet, *, pass_env: Sequence[str], env_names: Iterable[str], request_env: Iterable[str]
) -> None:
    """Refuse a backend's `pass_env`, `env` or `request_env` that the lists rule out. The daemon calls this at start.

    Raises `ConfigurationError` with the entry and the rule. The pairs depend on the daemon's own environment, and only
    `build_environment` checks the pairs. So a start also calls `build_environment` once for each backend.
    """
    for entry in pass_env:
        if entry.endswith("*"):
            _check_pass_pattern(rules, entry)
        else:
            _check_settable(rules, entry, "pass_env", ConfigurationError)
    for key, names in (("env", env_names), ("request_env", request_env)):
        for name in names:
            _check_settable(rules, name, key, ConfigurationError)


def build_environment(
    inherited: Mapping[str, str],
    rules: RuleSet,
    *,
    pass_env: Sequence[str] = (),
    env: Mapping[str, Secret | str] | None = None,
    request_env_allowed: Collection[str] = (),
    request_env: Mapping[str, Secret | str] | None = None,
    backend_sets: Mapping[str, str] | None = None,
    closed: Collection[str] = (),
    markers: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], EnvReport]:
    """Return the whole environment of one child, sorted by name, and the report.

    Values set on purpose replace inherited values. Among values set on purpose a later source wins: `backend_sets` (the
    adapter's own), `env` (configuration and credentials), `request_env`, `markers` (only `CLISUP_*`; set after
    everything). Names in `closed` without a value are set to an empty value, so that the CLI takes no value from
    elsewhere.

    Raises `ConfigurationError`, or `UsageError(kind="permission_denied")` if the request is at fault.
    """
    env, request_env, backend_sets = env or {}, request_env or {}, backend_sets or {}
    check_configuration(
        rules, pass_env=pass_env, env_names=(*backend_sets, *closed, *env), request_env=request_env_allowed
    )
    _check_request(rules, request_env_allowed, request_env)
    result, origin, dropped = _inherit(inherited, rules, pass_env)
    for label, values in (("backend", backend_sets), ("env", env), ("request", request_env)):
        for name, value in values.items():
            result[name] = _checked_value(name, value, label)
            origin[name] = label
    _check_pairs(rules.pairs, inherited, origin)
    for name in set(closed) - result.keys():
        result[name], origin[name] = "", "backend"
    # already true here; this check comes last so that no merge can undo it
    for name in [name for name in result if rules.denied(name)]:
        del result[name]
    _set_markers(result, origin, markers or {})
    _check_total(result)
    return dict(sorted(result.items())), _report(result, origin, dropped)


def _inherit(
    inherited: Mapping[str, str], rules: RuleSet, pass_env: Sequence[str]
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the variables of the daemon that pass, the rule id of each, and the rule id of each dropped variable."""
    kept: dict[str, str] = {}
    origin: dict[str, str] = {}
    dropped: dict[str, str] = {}
    by_name = frozenset(pass_env)
    prefixes = tuple(entry[:-1] for entry in pass_env if entry.endswith("*"))
    for name, value in inherited.items():
        rule = rules.verdict(name)
        if _NAME.fullmatch(name) is None or "\0" in value:
            dropped[name] = rule.id if rule else "malformed"
        elif reason := _why_kept(name, rule, by_name, prefixes):
            kept[name], origin[name] = value, reason
        else:
            dropped[name] = rule.id if rule else "unlisted"
    return kept, origin, dropped


def _why_kept(name: str, rule: Rule | None, by_name: Collection[str], prefixes: tuple[str, ...]) -> str | None:
    if rule is not None and rule.kind == "allow":
        return rule.id
    if rule is not None and rule.kind == "deny":
        return None
    if name in by_name:
        return f"pass_env:{name}"
    fitting = [prefix for prefix in prefixes if rule is None and name.startswith(prefix)]
    return f"pass_env:{fitting[0]}*" if fitting else None


def _check_pass_pattern(rules: RuleSet, entry: str) -> None:
    if not PATTERN.fullmatch(entry) or len(entry) <= MIN_PREFIX:
        message = f"cannot use the pass_env entry {_shown(entry)!r}, because it is no name and no prefix pattern"
        raise ConfigurationError(message, hint="write a name, or its beginning (three characters or more) and `*`")
    held = rules.held_back_by(entry)
    if held:
        ids = ", ".join(rule.id for rule in held[:3]) + (f" and {len(held) - 3} more" if len(held) > 3 else "")
        message = f"cannot use the pass_env pattern {entry!r}, because it covers what these rules hold back: {ids}"
        hint = "list the variables that you mean one by one"
        raise ConfigurationError(message, hint=hint, entry=entry, rules=[rule.id for rule in held])


def _check_settable(rules: RuleSet, name: str, key: str, error: type[ClisupError], kind: str | None = None) -> None:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        message = f"cannot use {_shown(name)!r} in {key}, because it is not the name of a variable"
        raise error(message, hint="a name has letters, digits and _ and does not begin with a digit")
    rule = rules.denied(name)
    if rule is not None:
        message = f"cannot use {name} in {key}, because {rule.id} forbids it from every source ({rule.reason})"
        raise error(message, kind=kind, hint=f"take {name} out", name=name, rule=rule.id)


def _check_request(rules: RuleSet, allowed: Collection[str], request_env: Mapping[str, Secret | str]) -> None:
    for name in request_env:
        _check_settable(rules, name, "a request's env", UsageError, "permission_denied")
        if name not in allowed:
            message = f"cannot set {name} for a request, because the backend's request_env does not list it"
            hint = "add it to request_env in the configuration, or leave it out of the request"
            raise UsageError(message, kind="permission_denied", hint=hint, name=name, rule="request_env")


def _check_pairs(pairs: Iterable[Pair], inherited: Mapping[str, str], origin: Mapping[str, str]) -> None:
    for pair in pairs:
        keys = [key for key in pair.credentials if key in origin]
        if origin.get(pair.endpoint) == "request":
            _check_request_pair(pair, keys, origin)
        elif pair.endpoint in origin:
            _check_key_not_held_back(pair, keys, inherited)
        elif inherited.get(pair.endpoint):
            _check_endpoint_not_held_back(pair, [key for key in keys if origin[key] not in _SET])


def _check_request_pair(pair: Pair, keys: Sequence[str], origin: Mapping[str, str]) -> None:
    """Raise if an endpoint from a client would get a key of the operator, or the CLI's login on disk."""
    foreign = [key for key in keys if origin[key] != "request"]
    if foreign or not keys:
        reason = f"{foreign[0]} of the daemon would go there" if foreign else "the CLI's own login would go there"
        message = f"cannot set {pair.endpoint} for a request, because {reason} ({pair.id})"
        hint = f"send the key in the same request ({' or '.join(pair.credentials[:2])}) and configure none for this backend"
        raise UsageError(message, kind="permission_denied", hint=hint, name=pair.endpoint, rule=pair.id)


def _check_key_not_held_back(pair: Pair, keys: Sequence[str], inherited: Mapping[str, str]) -> None:
    held = [key for key in pair.credentials if inherited.get(key)]
    if held and not keys:
        message = f"cannot give the CLI {pair.endpoint}, because its key {held[0]} is held back ({pair.id})"
        hint = f"pass both by pass_env, set both in env, or unset {held[0]} in the daemon's environment"
        raise ConfigurationError(message, hint=hint, name=pair.endpoint, rule=pair.id)


def _check_endpoint_not_held_back(pair: Pair, inherited_keys: Sequence[str]) -> None:
    if inherited_keys:
        key = inherited_keys[0]
        message = f"cannot pass {key} on, because {pair.endpoint}, which it belongs to, is held back ({pair.id})"
        hint = f"pass both by pass_env, set both in env, or unset {pair.endpoint} in the daemon's environment"
        raise ConfigurationError(message, hint=hint, name=key, rule=pair.id)


def _checked_value(name: str, value: Secret | str, label: str) -> str:
    """Return the plain value. Raise, without showing the value, if execve would refuse the value."""
    plain = value if isinstance(value, str) else value.get_secret_value()
    error = UsageError if label == "request" else ConfigurationError
    try:
        size = len(name) + len(plain.encode("utf-8", "surrogateescape")) + 2
    except UnicodeEncodeError:  # from None: the exception would carry the value
        raise error(f"cannot set {name}, because its value is not valid Unicode", hint="correct the value") from None
    if "\0" in plain:
        raise error(f"cannot set {name}, because its value holds a NUL character", hint="correct the value")
    if size > MAX_ENTRY_BYTES:
        raise error(f"cannot set {name}, because its value is longer than Linux allows", hint="pass a file's path")
    return plain


def _set_markers(result: dict[str, str], origin: dict[str, str], markers: Mapping[str, str]) -> None:
    for name, value in markers.items():
        if not name.startswith(MARKER_PREFIX) or not _NAME.fullmatch(name):
            raise ValueError(f"a marker's name begins with {MARKER_PREFIX}")
        result[name] = _checked_value(name, value, "marker")
        origin[name] = "marker"


def _check_total(result: Mapping[str, str]) -> None:
    total = sum(len(name) + len(value) + 2 for name, value in result.items())
    if total > MAX_TOTAL_BYTES:
        message = f"cannot start the CLI, because its environment is larger than {MAX_TOTAL_BYTES} bytes"
        raise ConfigurationError(message, hint="pass fewer or shorter variables; `clisup env` lists them")


def _report(result: Mapping[str, str], origin: Mapping[str, str], dropped: Mapping[str, str]) -> EnvReport:
    # Every rule id holds a colon, and the words of _SET hold none, so the two cannot be confused.
    kept = sorted((name, origin[name]) for name in result if origin[name] not in _SET)
    put = sorted((name, origin[name]) for name in result if origin[name] in _SET)
    return EnvReport(tuple(kept), tuple(sorted((_printable(n), rule) for n, rule in dropped.items())), tuple(put))


def _overlap(prefix: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return pattern[:-1].startswith(prefix) or prefix.startswith(pattern[:-1])
    return pattern.startswith(prefix)


def _shown(name: str) -> str:
    """Return the part of a malformed name that is certainly a name.

    If `KEY=value` is given as a name, the value must not reach an error.
    """
    match = _NAME.match(name)
    return (match[0][:64] if match else "") + "..."


def _printable(name: str) -> str:
    return name.encode("ascii", "backslashreplace").decode()[:MAX_NAME]
