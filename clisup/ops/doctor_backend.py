"""Checks of `clisup doctor` on one backend: rules on gathered facts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clisup.ops.doctor import Checks, Finding, Verdict, fail, findings_of, ok, warn
from clisup.ops.drift import DriftEntry
from clisup.policy.environment.scrub import ADAPTERS, EnvReport, Pair, Stamp, held_back
from clisup.policy.vendor_terms import TERMS, TERMS_DATE, logs_in_by_key
from clisup.policy.versions import version_key

SHOWN = 5  # names that a finding lists; it counts further names


@dataclass(slots=True)
class BackendFacts:
    """Facts about one backend.

    `optional` marks a backend that nobody configured or named, so that its absence is no failure. `problem` maps the
    name of a check (executable, version, argv or environment) to the reason why the backend cannot start, and the
    remedy. `login` is None if the CLI cannot tell. `keys` are the variables with which the CLI logs in, None if
    unknown. `key_env` is the variable with the key of an API backend. It is empty for an API that takes requests
    without a key, and None for a CLI with a login of its own. `served` is `allow_subscription` of a gateway that serves the
    backend, or None.
    """

    name: str
    lists: str
    kind: str = ""
    served: bool | None = None
    optional: bool = False
    path: str | None = None
    worker: tuple[str, ...] = ()
    version: str | None = None
    supported: str = ""
    newer_than: str | None = None
    login: bool | None = None
    login_asked: str = ""
    login_elsewhere: str = ""
    login_expired: bool = False
    argv: tuple[str, ...] = ()
    environment: EnvReport | None = None
    inherited: frozenset[str] = frozenset()
    pairs: tuple[Pair, ...] = ()
    keys: tuple[str, ...] | None = None
    places: tuple[str, ...] = ()
    key_env: str | None = None
    pass_env: tuple[str, ...] = ()
    root: bool = False
    refused_as_root: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    stamps: tuple[Stamp, ...] = ()
    names_checked: str | None = None
    drift: tuple[DriftEntry, ...] = ()
    problem: dict[str, tuple[str, str]] = field(default_factory=dict)


def check_backend(facts: BackendFacts) -> list[Finding]:
    """Return the findings on one backend, in order. A missing backend has only the finding `executable`."""
    checks = BACKEND_CHECKS if facts.path is not None else BACKEND_CHECKS[:1]
    return findings_of(facts, checks, backend=facts.name)


def _executable(facts: BackendFacts) -> Verdict:
    if facts.path is None:
        reason, fix = facts.problem["executable"]
        return (warn if facts.optional else fail)(reason, fix)
    behind = f", which starts {' '.join(facts.worker)}" if facts.worker else ""
    return ok(f"{facts.path}{behind}")


def _version(facts: BackendFacts) -> Verdict:
    if problem := facts.problem.get("version"):
        return fail(*problem)
    if facts.newer_than:
        return warn(
            f"{facts.version} is newer than {facts.newer_than}, the newest version that clisup was checked with; turns run, and what "
            "is unknown in its output counts as drift",
            f"update clisup, or set backends.{facts.name}.versions to say that this version works",
        )
    return ok(f"{facts.version or 'cannot tell: this kind cannot be asked'} (accepted: {facts.supported or 'any'})")


def _login(facts: BackendFacts) -> Verdict:
    if facts.key_env is not None:
        return _api_key(facts, facts.key_env)
    if facts.login_expired:
        return ok(
            f"the login has expired or is about to, and the next prompt renews it; {facts.login_asked} was not asked"
        )
    if facts.login is None:
        return ok("cannot tell: " + (f"{facts.login_asked} gives no known answer" if facts.login_asked else _NO_WAY))
    if facts.login:
        return ok(f"logged in, says {facts.login_asked}; the first prompt shows whether the API accepts the login")
    held = _held_keys(facts)
    own = f"log in as the daemon's user, with {facts.path}, or set a key in [backends.{facts.name}.env]"
    passed = f"; {_list(held)} is in the daemon's environment, but held back: name it in pass_env" if held else ""
    if facts.login_elsewhere:
        return warn(
            f"not logged in, says {facts.login_asked}; the command ignores {facts.login_elsewhere}", own + passed
        )
    return fail(f"not logged in, says {facts.login_asked}", own + passed)


def _api_key(facts: BackendFacts, name: str) -> Verdict:
    if not name:
        return ok("this backend sends no key")
    if facts.login:
        return ok(f"the key is in {name}; the first prompt shows whether the API accepts the key")
    fix = f'set {name} for the daemon, or name a file with the key (0600): [backends.{facts.name}.env_files] {name} = "~/key"'
    return (warn if facts.optional else fail)(f"no key: the variable {name} is not set", fix)


_NO_WAY = "this CLI has no such command without a request to its API"


def _argv(facts: BackendFacts) -> Verdict:
    if problem := facts.problem.get("argv"):
        return fail(*problem)
    return ok(" ".join(facts.argv))


def _environment(facts: BackendFacts) -> Verdict:
    report = facts.environment
    if report is None:
        return fail(*facts.problem["environment"])
    counts = f"{len(report.kept)} kept, {len(report.set)} set, {len(report.dropped)} dropped"
    there = {name for name, how in (*report.kept, *report.set) if how not in ADAPTERS}
    lonely = [pair.endpoint for pair in facts.pairs if pair.endpoint in there and not there & set(pair.credentials)]
    if lonely:
        detail = f"{counts}; {_list(lonely)} is passed without a key: the CLI would send its own login there"
        return warn(detail, f"set the key in [backends.{facts.name}.env] as well, unless this is intended")
    absent = [name for name in facts.pass_env if not name.endswith("*") and name not in facts.inherited]
    if absent:
        detail = f"{counts}; pass_env names {_list(absent)}, but the daemon's environment has no such variable"
        return warn(detail, "start the daemon with the variable, or remove it from pass_env")
    held = _held_keys(facts)
    note = f"; held back unless pass_env names it: {_list(held)}" if held else ""
    return ok(f"{counts}{note}")


def _held_keys(facts: BackendFacts) -> list[str]:
    return held_back(facts.environment, facts.pairs, facts.keys, facts.places) if facts.environment else []


def _root(facts: BackendFacts) -> Verdict:
    if not facts.root:
        return ok("not root")
    if not facts.refused_as_root:
        return ok("root, and this CLI has no restriction for root")
    refused = [word for word in facts.refused_as_root if word in facts.args]
    fix = "run the daemon as an ordinary user (docs/reference/terminal.md names the exception)"
    if refused:
        return fail(f"args asks for {_list(refused)}, which this CLI refuses as root", fix)
    return warn(f"root: this CLI will refuse {_list(facts.refused_as_root)}", fix)


def _lists(facts: BackendFacts) -> Verdict:
    versions = [version for stamp in facts.stamps if (version := stamp.version_of(facts.lists))]
    said = "checked with " + "; ".join(dict.fromkeys(f"{stamp.source}, {stamp.date}" for stamp in facts.stamps))
    if not facts.stamps:
        fix = "add a line such as `# checked: claude 2.1.329, 2026-11-20` to each list (docs/reference/environment.md)"
        return warn("the lists have no record of their last check", fix)
    newest = max(map(version_key, versions), default=None)
    newer = facts.version is not None and newest is not None and version_key(facts.version) > newest
    if newer and facts.names_checked != facts.version:
        fix = f"list the new names: clisup doctor --drift {facts.name}"
        return warn(f"{said}, but {facts.version} is installed, which may read variables that no list knows", fix)
    return ok(said)


def _drift(facts: BackendFacts) -> Verdict:
    if not facts.drift:
        return ok("no unknown output")
    words = "; ".join(f"{entry.version}: {_unknown(entry)}" for entry in facts.drift)
    fix = "nothing is lost: `unparsed` events hold the whole frames; update clisup, or report them with a recording (clisup record)"
    return warn(f"unknown to this clisup, by version of the CLI: {words}", fix)


def _unknown(entry: DriftEntry) -> str:
    parts = [("frames", entry.frames), ("fields", entry.fields)]
    return ", ".join(f"{what} {_list(sorted(names))}" for what, names in parts if names)


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _gateway(facts: BackendFacts) -> Verdict | None:
    if facts.served is None:
        return None
    there = [name for name, _ in (*facts.environment.kept, *facts.environment.set)] if facts.environment else []
    if logs_in_by_key(facts.kind, facts.keys, there):
        return ok("clisup gateway serves it, and it logs in by a key")
    terms = TERMS.get(facts.kind)
    told = f". {terms.page} said on {TERMS_DATE}: {terms.words}" if terms else ", whose vendor's terms apply"
    detail = (
        f"clisup gateway {'serves' if facts.served else 'refuses'} it: it may use the login of a subscription{told}"
    )
    return warn(
        detail, f"set an API key in [backends.{facts.name}.env], or serve another backend (docs/how-to/gateway.md)"
    )


BACKEND_CHECKS: Checks = (
    ("executable", _executable),
    ("version", _version),
    ("login", _login),
    ("argv", _argv),
    ("environment", _environment),
    ("scrub lists", _lists),
    ("root", _root),
    ("drift", _drift),
    ("gateway", _gateway),
)
"""Checks in the order of display."""
