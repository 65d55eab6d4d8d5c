"""Take up a version of a real CLI: install it, record every scenario with it, and print what is new.

    make take-up CLI=claude                              # the newest version in the registry
    make take-up CLI=codex VERSION=0.170.0
    make take-up CLI=codex VERSION=0.171.0               # the pinned version: record it anew
    make take-up CLI=claude VERSION=2.1.309 OLDEST=1     # the oldest version that clisup accepts
    make newest                                          # every CLI's newest version; changes nothing

All work is done in a copy of the checkout. The checkout gets the result at the end: the pin, the recordings, their stories, the known
fields, the adapter's versions and the `# checked` lines of the scrub lists. docs/how-to/new-cli-version.md says what to do with it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from clisup.backends.contract import story
from clisup.backends.registry import get_adapter
from clisup.recordings.files import read_recording
from tests.e2e.lab import ROOT
from tests.e2e.taken import REAL, Cli, Recorder
from tests.versions import CLIS, PACKAGES, RECORDED, pinned

RECORDINGS = ROOT / "tests" / "recordings"
STORIES = ROOT / "tests" / "backends" / "expected"
KNOWN_FIELDS = ROOT / "clisup" / "backends" / "known_fields"
LISTS = ROOT / "scrub_lists"
RESULT = ".take-up.json"
HELP_LIMIT_S = 60.0
TRIES = 2
"""How often a scenario whose story differs is recorded again: most differences are races of the CLI."""
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
_COUNT = re.compile(r"  x(\d+)$")
_NUMBERS = re.compile(r"\d+(?=\+| in| new| cached| out)|\$[\d.e-]+")


class Look(Struct):
    """What one version shows of itself. `fields` maps a frame to its fields."""

    flags: frozenset[str]
    fields: Mapping[str, frozenset[str]]


class Stories(Struct):
    """Names of recordings, by what became of their stories.

    `order`: the same lines in another order. `races`: another try gave the old story.
    """

    same: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    races: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the counts; names are given where somebody has to look."""
        counts = f"{len(self.same)} the same, {len(self.order)} order only, {len(self.races)} races"
        told = [(word, getattr(self, word)) for word in ("changed", "new", "gone")]
        return ", ".join([counts, *(f"{len(names)} {word} ({', '.join(names)})" for word, names in told if names)])


class Result(Struct):
    """What a version brought. `tests` is pytest's last line, `failed` are the tests that failed."""

    old: str
    new: str
    before: Look
    after: Look
    variables: list[str]
    stories: Stories
    tests: str
    failed: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cli", nargs="?", choices=sorted(REAL))
    parser.add_argument("version", nargs="?", help="default: the newest in the registry")
    parser.add_argument("--oldest", action="store_true", help="record VERSION as the oldest that clisup accepts")
    parser.add_argument(
        "--newest", action="store_true", help="try the newest version of every CLI, or of CLI; change nothing"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.newest:
        sys.exit(max([_try_newest(name) for name in ([options.cli] if options.cli else sorted(REAL))]))
    if options.cli is None or (options.oldest and options.version is None):
        parser.error("name a CLI, and with --oldest a version")
    if options.here:
        _work_here(options.cli, options.version, oldest=options.oldest)
        return
    new = _published(options.cli, options.version)
    if new == pinned(options.cli) and options.version is None:
        sys.exit(f"{options.cli} {new} is pinned already, and nothing newer was named")
    result = _in_a_copy(options.cli, new, oldest=options.oldest, keep=True)
    print("\n".join(report(options.cli, result)))


def _try_newest(name: str) -> int:
    """Print one line about the newest version of a CLI. Return 1 if somebody has to look."""
    new = _published(name, None)
    if new == pinned(name):
        print(f"{name} {new}: is the newest, and checked", flush=True)
        return 0
    try:
        result = _in_a_copy(name, new, oldest=False, keep=False)
    except subprocess.CalledProcessError as error:
        print(f"{name} {new}: failed with exit code {error.returncode}", flush=True)
        return 1
    print(f"{name} {new} (checked: {pinned(name)}): {summary(result)}", flush=True)
    return int(bool(result.failed or result.stories.changed or result.stories.gone))


def _published(name: str, version: str | None) -> str:
    """Return a version that the registry has. Exits with a message if it has not."""
    asked = f"{PACKAGES[name]}@{version}" if version else PACKAGES[name]
    found = subprocess.run(["npm", "view", asked, "version"], capture_output=True, text=True, timeout=HELP_LIMIT_S)
    known = found.stdout.strip()
    if not known:
        sys.exit(f"the registry has no {asked}; nothing was changed")
    return known


# The copy


def _in_a_copy(name: str, new: str, *, oldest: bool, keep: bool) -> Result:
    """Do the work in a copy of the checkout, and bring the result back if `keep`."""
    room = ROOT / ".cache" / "take-up" / f"{name}-{new}"
    shutil.rmtree(room, ignore_errors=True)
    try:
        _copy_checkout(room)
        argv = [sys.executable, "-m", "tests.e2e.take_up", "--here", name, new, *(["--oldest"] if oldest else [])]
        subprocess.run(argv, check=True, cwd=room, stdout=sys.stderr)
        result = msgspec.json.decode((room / RESULT).read_bytes(), type=Result)
        if keep:
            _bring_back(name, room)
            _write_versions(name, REAL[name], new, oldest=oldest, checked=not result.variables)
        return result
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _copy_checkout(room: Path) -> None:
    """Copy what git knows, with changes, and link the installed CLIs: npm replaces files and does not write into them."""
    listed = _output("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (room / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, room / name)
    if (ROOT / ".e2e").is_dir():
        subprocess.run(["cp", "-al", f"{(ROOT / '.e2e').resolve()}/", str(room / ".e2e")], check=True)


def _bring_back(name: str, room: Path) -> None:
    """Copy what belongs to this CLI, so that two take-ups at once do not mix. The known fields come from all recordings."""
    cli = REAL[name]
    for base in ("tests/recordings", "tests/backends/expected"):
        for pattern in {recorder.folder.format(version="*") for recorder in cli.recorders}:
            for old in (ROOT / base).glob(pattern):
                shutil.rmtree(old) if old.is_dir() else old.unlink()
            for fresh in (room / base).glob(pattern):
                target = ROOT / base / fresh.relative_to(room / base)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(fresh, target) if fresh.is_dir() else shutil.copy2(fresh, target)
    files = [f"tests/e2e/clis/{name}/{file}" for file in ("package.json", "package-lock.json")]
    for file in files:
        shutil.copy2(room / file, ROOT / file)
    subprocess.run([sys.executable, "-m", "tests.backends.known_fields"], check=True, cwd=ROOT)


# The work


def _work_here(name: str, new: str, *, oldest: bool) -> None:
    """Take up a version in this checkout, and write the result into `RESULT`."""
    cli, old = REAL[name], pinned(name)
    _install(name)
    before = _look(cli)
    with tempfile.TemporaryDirectory() as scratch:
        if not oldest:
            _variables(name, cli, Path(scratch))
        pins = (CLIS / name / "package.json").read_bytes()
        if oldest:
            _install_unlocked(name, new)
        elif new != old:
            _pin(name, new)
            _install(name)
        stories = _record(cli, old, new, oldest=oldest)
        subprocess.run([sys.executable, "-m", "tests.backends.known_fields"], check=True, cwd=ROOT)
        after = before if oldest else _look(cli)
        variables = [] if oldest else _variables(name, cli, Path(scratch))
    if oldest:
        (CLIS / name / "package.json").write_bytes(pins)
    elif new != old:
        _keep_bound(cli, old)
    _write_versions(name, cli, new, oldest=oldest, checked=not variables)
    tests, failed = _test()
    result = Result(old, new, before, after, variables, stories, tests, failed)
    (ROOT / RESULT).write_bytes(msgspec.json.encode(result))


def _record(cli: Cli, old: str, new: str, *, oldest: bool) -> Stories:
    """Record, and compare each story with the old one."""
    stories = Stories()
    for recorder in cli.recorders:
        folder = RECORDINGS / recorder.folder.format(version=new)
        names = list(recorder.bound) if oldest else []
        if oldest and not names:
            continue
        print(f"{recorder.module} {' '.join(recorder.args)} ...", flush=True)
        _run(recorder, names)
        for path in sorted(folder.glob("*.jsonl")):
            _sort(recorder, path, old, stories)
        if not oldest:
            kept = {path.stem for path in folder.glob("*.jsonl")}
            earlier = {path.stem for path in (RECORDINGS / recorder.folder.format(version=old)).glob("*.jsonl")}
            stories.gone += sorted(name for name in earlier - kept if recorder.owns(name))
    return stories


def _sort(recorder: Recorder, path: Path, old: str, stories: Stories) -> None:
    """Compare one recording with its old story, and record it again where it differs."""
    if not recorder.owns(path.stem):
        return
    known = _story_path(recorder, old, path.stem)
    if not known.exists():
        stories.new.append(path.stem)
        return
    wanted = known.read_text()
    told = _story(recorder, path)
    if told == wanted:
        stories.same.append(path.stem)
    elif bag(told) == bag(wanted):
        stories.order.append(path.stem)
    elif _again(recorder, path, wanted):
        stories.races.append(path.stem)
    else:
        stories.changed.append(path.stem)


def _again(recorder: Recorder, path: Path, wanted: str) -> bool:
    """Record a scenario again, and keep the try that tells the old story."""
    scenario = recorder.scenario(path.stem, json.loads(path.with_suffix(".meta.json").read_text())["scenario"])
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as scratch:
            _run(recorder, [scenario], to=Path(scratch))
            found = next(Path(scratch).rglob(path.name), None)
            if found is not None and bag(_story(recorder, found)) == bag(wanted):
                for made in found.parent.iterdir():  # the runs of one session belong together
                    shutil.copy2(made, path.parent / made.name)
                return True
    return False


def _run(recorder: Recorder, names: Iterable[str], *, to: Path | None = None) -> None:
    chosen = [*names] or recorder.everything
    argv = [sys.executable, "-m", recorder.module, *recorder.args, *chosen, *(["--to", str(to)] if to else [])]
    subprocess.run(argv, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def _story(recorder: Recorder, path: Path) -> str:
    return story(read_recording(path, kind=recorder.kind), get_adapter(recorder.kind))


def _story_path(recorder: Recorder, version: str, name: str) -> Path:
    """Return where the story of a recording stands. Those of a pinned version have no folder for it."""
    plain = RECORDED.get(recorder.kind) and recorder.folder == f"{recorder.kind}/{{version}}"
    return STORIES / (recorder.kind if plain else recorder.folder.format(version=version)) / f"{name}.txt"


def bag(text: str) -> Counter[str]:
    """Return the lines of a story without their order. Tokens depend on the order of requests, so their numbers go."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        count = _COUNT.search(line)
        found[_NUMBERS.sub("n", line[: count.start()] if count else line)] += int(count[1]) if count else 1
    return found


def _keep_bound(cli: Cli, old: str) -> None:
    """Remove the old recordings. Of the oldest version that clisup accepts, the named ones stay."""
    for recorder in cli.recorders:
        folder = RECORDINGS / recorder.folder.format(version=old)
        kept = (
            set(_bound_names(recorder, folder)) if f">={old}" == get_adapter(recorder.kind).default_versions else set()
        )
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            if path.name.split(".")[0] not in kept:
                path.unlink()
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        if recorder.kind == "acp" and (STORIES / recorder.folder.format(version=old)).is_dir():
            shutil.rmtree(STORIES / recorder.folder.format(version=old))
        for name in _stories_gone(recorder):
            name.unlink()


def _bound_names(recorder: Recorder, folder: Path) -> Iterator[str]:
    for path in folder.glob("*.meta.json"):
        name = path.name.removesuffix(".meta.json")
        if recorder.scenario(name, json.loads(path.read_text())["scenario"]) in recorder.bound:
            yield name


def _stories_gone(recorder: Recorder) -> list[Path]:
    """Return the stories of the pinned version whose recordings are gone."""
    if recorder.kind not in RECORDED:
        return []
    folder = RECORDINGS / recorder.kind / pinned(next(n for n, cli in REAL.items() if recorder in cli.recorders))
    return [path for path in (STORIES / recorder.kind).glob("*.txt") if not (folder / f"{path.stem}.jsonl").exists()]


def _write_versions(name: str, cli: Cli, new: str, *, oldest: bool, checked: bool) -> None:
    """Write the version into the adapter, and into the scrub lists if no variable waits for a decision."""
    if cli.adapter:
        what, word = ("default_versions", f">={new}") if oldest else ("newest_checked", new)
        _rewrite(ROOT / cli.adapter, rf'( {what} = )"[^"]*"', rf'\1"{word}"')
    if cli.lists and checked and not oldest:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        for path in LISTS.glob(f"{cli.lists}.*"):
            _rewrite(path, rf"(# checked: {name}) \S+, \S+", rf"\1 {new}, {today}")


def _rewrite(path: Path, pattern: str, word: str) -> None:
    path.write_text(re.sub(pattern, word, path.read_text(), count=1))


def _test() -> tuple[str, list[str]]:
    """Write the stories, then run the tests of the recordings. Return pytest's last line and what failed."""
    argv = [sys.executable, "-m", "pytest", "-n2", "tests/backends"]
    update = {**os.environ, "CLISUP_UPDATE_EXPECTED": "1"}
    subprocess.run([*argv[:-1], "tests/backends/test_recordings.py"], cwd=ROOT, env=update, stdout=subprocess.DEVNULL)
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()[-300:] or "pytest said nothing"]
    return lines[-1], [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]


# What is told


def report(name: str, result: Result) -> list[str]:
    """Say in lines what is new and what is gone; a heading without lines below it has the word `none`."""
    before, after = result.before, result.after
    frames_before, frames_after = frozenset(before.fields), frozenset(after.fields)
    common = sorted(frames_before & frames_after)
    return [
        f"{name} {result.old} -> {result.new}",
        *_section("new frames", sorted(frames_after - frames_before)),
        *_section("frames not seen any more", sorted(frames_before - frames_after)),
        *_section("new fields", [f"{f}: {n}" for f in common for n in sorted(after.fields[f] - before.fields[f])]),
        *_section(
            "fields not seen any more",
            [f"{f}: {n}" for f in common for n in sorted(before.fields[f] - after.fields[f])],
        ),
        *_section("new flags", sorted(after.flags - before.flags)),
        *_section("flags gone", sorted(before.flags - after.flags)),
        *_section("new variables that no scrub list decides about", result.variables),
        f"stories: {result.stories.line()}",
        f"tests: {result.tests}",
        *_section("tests that failed", result.failed),
    ]


def summary(result: Result) -> str:
    """Return one line for a version that nobody has to read about."""
    before, after = result.before, result.after
    fields = sum(len(names - before.fields.get(frame, names)) for frame, names in after.fields.items())
    news = [
        (len(frozenset(after.fields) - frozenset(before.fields)), "new frames"),
        (fields, "new fields"),
        (len(after.flags - before.flags), "new flags"),
        (len(before.flags - after.flags), "flags gone"),
        (len(result.variables), "new variables"),
    ]
    told = ", ".join(f"{count} {what}" for count, what in news if count) or "nothing new"
    return f"{told}; stories: {result.stories.line()}; tests: {result.tests}"


def flags_in(text: str) -> frozenset[str]:
    """Return the long options that a page of help names."""
    return frozenset(_FLAG.findall(text))


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"{title}: {len(lines) or 'none'}", *[f"  {line}" for line in lines]]


def _look(cli: Cli) -> Look:
    pages = [_output(*cli.command(), *words.split(), limit=HELP_LIMIT_S) for words in cli.helps]
    kinds = sorted({recorder.kind for recorder in cli.recorders})
    files = [(kind, json.loads((KNOWN_FIELDS / f"{kind}.json").read_text())) for kind in kinds]
    fields = {f"{kind} {frame}": frozenset(names) for kind, frames in files for frame, names in frames.items()}
    return Look(flags_in("\n".join(pages)), fields)


def _variables(name: str, cli: Cli, scratch: Path) -> list[str]:
    """Read the CLI's files as `clisup doctor --drift` does; the second look in one scratch home tells what is new."""
    if not cli.lists:
        return []
    config = scratch / "config.toml"
    command = json.dumps(cli.command())
    config.write_text(f'[backends.{name}]\nkind = "{name}"\ncommand = {command}\n{cli.table}\n')
    clisup = [sys.executable, "-m", "clisup", "doctor", "--config", str(config), "--drift", name, "--json"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(scratch), "XDG_RUNTIME_DIR": str(scratch)}
    found: dict[str, Any] = json.loads(_output(*clisup, env=environment, limit=600))
    return list(found["new"] or [])


def _pin(name: str, version: str) -> None:
    """Write the pin and its lock file. The lock holds integrity hashes and no address of a registry."""
    folder = CLIS / name
    pins = json.loads((folder / "package.json").read_text())
    pins["dependencies"][PACKAGES[name]] = version
    (folder / "package.json").write_text(json.dumps(pins, indent=2) + "\n")
    (folder / "package-lock.json").unlink()
    lock = [
        "npm",
        "install",
        "--package-lock-only",
        "--omit-lockfile-registry-resolved",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
    ]
    subprocess.run(lock, check=True, cwd=folder, stdout=subprocess.DEVNULL)


def _install(name: str) -> None:
    subprocess.run(["sh", str(ROOT / "tests" / "e2e" / "install_cli.sh"), name], check=True)


def _install_unlocked(name: str, version: str) -> None:
    """Install a version without a lock file, for recordings alone: npm cannot lock what the registry no longer has whole."""
    folder, pins = ROOT / ".e2e" / name, CLIS / name / "package.json"
    _rewrite(pins, rf'("{re.escape(PACKAGES[name])}": )"[^"]*"', rf'\1"{version}"')
    shutil.rmtree(folder)
    folder.mkdir()
    shutil.copy2(pins, folder)
    words = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(words, check=True, cwd=folder, stdout=subprocess.DEVNULL)


def _output(*argv: str, env: Mapping[str, str] | None = None, limit: float = HELP_LIMIT_S) -> str:
    return subprocess.run(argv, check=True, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, timeout=limit).stdout


if __name__ == "__main__":
    main()
