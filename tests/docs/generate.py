"""Writes what pages show of the code's own tables: `python -m tests.docs.generate` after the code has changed.

- docs/reference/protocol.md and docs/reference/events.md: the rows of the tables (name and type) are made from the models,
  in their order; what a field means stays as it was written by hand. A new row says `UNEXPLAINED`, which the tests refuse.
- docs/reference/configuration.md: the rows of all tables, from the table of keys and the model.
- docs/reference/commands.md: the commands by group with their first sentences, from the tree of commands; the exit codes, from
  `clisup/errors.py`.
- docs/explanation/architecture.md: the picture of the rooms is made from the imports of the package, the diagram of a turn's life is
  the transition table of `clisup/model/lifecycle.py`.
- docs/proofs/performance.md: the table of tests/bench/recorded.json, and docs/images/performance.svg, its plot.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from pydantic import BaseModel

from clisup.cli.options import HelpGroup
from clisup.cli.root import GROUPS, root
from clisup.errors import EXIT_CODES, KINDS
from clisup.model.lifecycle import TRANSITIONS, SessionState
from clisup.wire.methods import METHODS
from clisup.wire.results import SessionDetail, SessionSummary
from tests import test_docs as reference
from tests.bench.plot import plot
from tests.bench.report import splice
from tests.bench.run import PLOT, recorded
from tests.test_architecture import NAMES, all_modules, import_graph, reachable

ROOT = Path(__file__).resolve().parents[2]
UNEXPLAINED = "(what does it mean?)"
BEGIN, END = "<!-- made by python -m tests.docs.generate -->\n", "<!-- end of what is made -->\n"
ROOMS_BEGIN = "<!-- rooms, made by python -m tests.docs.generate -->\n"
ROOMS_END = "<!-- end of the rooms -->\n"
EXIT_CODES_BEGIN = "<!-- exit codes, made by python -m tests.docs.generate -->\n"
EXIT_CODES_END = "<!-- end of the exit codes -->\n"
_WHOLE = 1000
"""Characters of a command's first sentence: more than any has."""

_TABLE = re.compile(
    r"(?P<head>^\| (?:param|field) \| type \| meaning \|\n\|[-| ]+\|\n)(?P<rows>(?:^\|.*\n)+)",
    re.MULTILINE,
)


def made(page: str) -> str:
    """The page's text with all that is generated made anew."""
    text = (ROOT / page).read_text()
    if page == "docs/reference/commands.md":
        return between_marks(between_marks(text, command_table()), exit_code_table(), EXIT_CODES_BEGIN, EXIT_CODES_END)
    if page == "docs/explanation/architecture.md":
        return between_marks(between_marks(text, state_diagram()), room_diagram(), ROOMS_BEGIN, ROOMS_END)
    if page == "docs/proofs/performance.md":
        return splice(text, recorded())
    if page == "docs/reference/configuration.md":
        return _configuration(text)
    if page == "docs/reference/protocol.md":
        text = _error_table(text)
    return re.sub(
        r"^(?P<mark>###?) `(?P<name>[^`]+)`\n(?P<body>.*?)(?=^#{1,3} |\Z)",
        lambda found: (
            f"{found['mark']} `{found['name']}`\n{_section(page, found['mark'], found['name'], found['body'])}"
        ),
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


def _section(page: str, mark: str, name: str, body: str) -> str:
    candidates = _candidates(page, mark, name)

    def rewritten(found: re.Match[str]) -> str:
        told = dict(re.findall(r"^\| `([^`]+)` \| .*? \| (.*) \|$", found["rows"], re.MULTILINE))
        fitting = [fields for column, fields in candidates if found["head"].startswith(f"| {column} |")]
        best = max(fitting, key=lambda fields: (len(set(fields) & set(told)), -len(fields)), default={})
        if not set(best) & set(told):
            return found[0]  # a table of something else
        rows = [f"| `{field}` | {type_} | {told.get(field, UNEXPLAINED)} |\n" for field, type_ in best.items()]
        return found["head"] + "".join(rows)

    return _TABLE.sub(rewritten, body)


def _candidates(page: str, mark: str, name: str) -> list[tuple[str, dict[str, str]]]:
    """What the tables of this section may be of: the name of the first column, and the fields."""
    if page == "docs/reference/events.md":
        classes = reference.EVENT_CLASSES if mark == "##" else reference.SHARED
        return [("field", reference.fields_of(classes[name]))] if name in classes else []
    method = METHODS.get(name)
    if method is None or mark != "###":
        return []
    results = [method.result] if method.result else reference.BY_HAND[name] or []
    given = [*(results if isinstance(results, list) else [results])]
    if name == "session/list":
        given.append(SessionSummary)
    if name == "daemon/status":
        given += reference.STATUS_PARTS
    return [("param", reference.fields_of(method.params)), *(("field", _own_fields(model)) for model in given)]


def _own_fields(model: type[BaseModel]) -> dict[str, str]:
    fields = reference.fields_of(model)
    if model is SessionDetail:  # a summary and a bit: the page says so
        return {name: type_ for name, type_ in fields.items() if name not in SessionSummary.model_fields}
    return fields


def _error_table(text: str) -> str:
    told = dict(re.findall(r"^\| `([a-z_]+)` \| -\d+ \| (?:yes|no) \| (.*) \|$", text, re.MULTILINE))
    on_wire = list(KINDS)[: list(KINDS).index("daemon_not_running")]
    rows = [
        f"| `{kind}` | {KINDS[kind].code} | {'yes' if KINDS[kind].retryable else 'no'} | {told.get(kind, UNEXPLAINED)} |\n"
        for kind in on_wire
    ]
    return re.sub(
        r"(^\| kind \| code \|.*\n\|[-| ]+\|\n)(?:^\|.*\n)+",
        lambda found: found[1] + "".join(rows),
        text,
        flags=re.MULTILINE,
    )


def _configuration(text: str) -> str:
    """Each section `[table]` with its rows; a second table in it is that of the list of rules."""
    rows = reference.configuration_rows()

    def section(found: re.Match[str]) -> str:
        name = found["name"].strip("[]").replace("backends.NAME", "backends.*").replace("prices.PATTERN", "prices.*")
        names = iter([name, f"{name}.rules[]"])
        return re.sub(
            reference.CONFIGURATION_TABLE,
            lambda table: table[1] + "".join(rows.get(next(names), [])),
            found[0],
            flags=re.MULTILINE,
        )

    return re.sub(r"^## `\[(?P<name>[^`]+)\]`\n.*?(?=^## |\Z)", section, text, flags=re.MULTILINE | re.DOTALL)


def between_marks(text: str, block: str, begin: str = BEGIN, end: str = END) -> str:
    """Return the text with `block` between the marks."""
    head, _, rest = text.partition(begin)
    return head + begin + block + end + rest.partition(end)[2]


def command_table() -> str:
    """Return the table of all commands: by group, in the order of `clisup --help`."""
    rows = ["| command | purpose |\n", "|---|---|\n"]
    with click.Context(root, info_name="clisup") as context:
        for title, names in GROUPS.items():
            rows.append(f"| **{title}** | |\n")
            for name in names:
                command = root.get_command(context, name)
                assert command is not None
                rows += _command_rows(command, context)
    return "".join(rows)


def _command_rows(command: click.Command, parent: click.Context) -> Iterator[str]:
    """Yield the row of a command and the rows of its own commands. A group that only prints its help has no row."""
    context = click.Context(command, info_name=command.name, parent=parent)
    if not isinstance(command, HelpGroup):
        left_out = {command.options_metavar, getattr(command, "subcommand_metavar", None)}
        words = [
            context.command_path,
            *(piece for piece in command.collect_usage_pieces(context) if piece not in left_out),
        ]
        purpose = command.get_short_help_str(_WHOLE).removesuffix(".")
        name = " ".join(words).removeprefix("clisup ").replace("|", "\\|")
        yield f"| `{name}` | {purpose} |\n"
    for inner in getattr(command, "commands", {}).values():
        yield from _command_rows(inner, context)


def exit_code_table() -> str:
    """Return the table of the exit codes with their meanings, and the kinds of errors that end with each."""
    rows = ["| code | meaning | kinds of errors |\n", "|---|---|---|\n"]
    for code, meaning in EXIT_CODES.items():
        kinds = ", ".join(f"`{kind}`" for kind, about in KINDS.items() if about.exit_code == code)
        rows.append(f"| {code} | {meaning} | {kinds} |\n")
    return "".join(rows)


def room_diagram() -> str:
    """Return a Mermaid picture of the rooms of the package: an arrow for each import that no longer path implies."""
    graph = rooms()
    implied = {room: {far for near in graph[room] for far in reachable(graph, near)} for room in graph}
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"    {room} --> {other}" for room in sorted(graph) for other in sorted(graph[room] - implied[room])]
    return "\n".join([*lines, "```", ""])


def rooms() -> dict[str, set[str]]:
    """Return the rooms (folders directly below the package) that each room imports."""
    graph: dict[str, set[str]] = {room: set() for name in NAMES if (room := _room(name))}
    for name, targets in import_graph(all_modules()).items():
        if room := _room(name):
            graph[room] |= {other for target in targets if (other := _room(target))} - {room}
    return graph


def _room(module: str) -> str | None:
    room = module.removeprefix("clisup").lstrip(".").partition(".")[0]
    return room if room and (ROOT / "clisup" / room / "__init__.py").is_file() else None


def state_diagram() -> str:
    """The life of a session as a Mermaid diagram; arrows that lead back to where they come from are left out."""
    arrows: dict[tuple[SessionState, SessionState], list[str]] = {}
    for (state, cause), after in TRANSITIONS.items():
        if after is not state:
            arrows.setdefault((state, after), []).append(str(cause).replace("_", " "))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {SessionState.IDLE}"]
    lines += [f"    {state} --> {after}: {', '.join(causes)}" for (state, after), causes in arrows.items()]
    lines += [f"    {SessionState.CLOSED} --> [*]", "```", ""]
    return "\n".join(lines)


GENERATED = tuple(
    f"docs/{page}.md"
    for page in (
        "reference/protocol",
        "reference/events",
        "reference/configuration",
        "reference/commands",
        "explanation/architecture",
        "proofs/performance",
    )
)


def main() -> int:
    for page in GENERATED:
        before, after = (ROOT / page).read_text(), made(page)
        if before != after:
            (ROOT / page).write_text(after)
            print(f"{page}: written anew")
    PLOT.write_text(plot((recorded() or {"figures": {}})["figures"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
