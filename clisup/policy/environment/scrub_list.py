"""Parser of scrub lists: from the text of a file to rules, pairs and the last check. Pure."""

from __future__ import annotations

import re

from clisup.errors import ConfigurationError
from clisup.policy.environment.scrub import MAX_NAME, MIN_PREFIX, PATTERN, Pair, Rule, RuleKind, ScrubList, Stamp

_CHECKED = re.compile(r"# checked: (.+), (\d{4}-\d{2}-\d{2})")


def parse_list(list_name: str, kind: RuleKind, text: str, *, origin: str = "") -> ScrubList:
    """Parse one list. `origin` is the file's path for messages.

    A line is one of these: `PATTERN | reason | source`; `@pair ENDPOINT: KEY ... | reason | source` (scrub lists only);
    `@include LIST`; `@nothing` in a list that is meant to hold no rule; an empty line; a comment.
    A comment begins with `#`. The comment `# checked: SOURCE, YYYY-MM-DD` records the last check of the list.

    Raises `ConfigurationError` with file and line for any other line. A file without a rule and without `@nothing` is
    an error too, because the file may be damaged.
    """
    parser = _ListParser(list_name, kind, origin or f"{list_name}.{kind}")
    for number, line in enumerate(text.split("\n"), 1):
        parser.feed(number, line.strip())
    if not text.endswith("\n"):
        raise parser.error(text.count("\n") + 1, "it does not end in a newline and may be cut off")
    if parser.empty == bool(parser.rules or parser.includes or parser.pairs):
        why = "it holds rules beside `@nothing`" if parser.empty else "the file holds no rule"
        raise parser.error(1, why)
    return ScrubList(tuple(parser.rules.values()), tuple(parser.pairs), tuple(parser.includes), parser.checked)


class _ListParser:
    def __init__(self, list_name: str, kind: RuleKind, origin: str) -> None:
        self.list_name, self.kind, self.origin = list_name, kind, origin
        self.rules: dict[str, Rule] = {}
        self.pairs: list[Pair] = []
        self.includes: list[str] = []
        self.empty = False  # set by `@nothing`
        self.checked: Stamp | None = None

    def feed(self, number: int, line: str) -> None:
        """Parse one line of the list."""
        if line.startswith("# checked:"):
            self.checked = self._stamp(number, line)
        if not line or line.startswith("#"):
            return
        if line.startswith("@include "):
            self.includes.append(self._list_to_include(number, line))
            return
        if line == "@nothing":
            self.empty = True
            return
        columns = [column.strip() for column in line.split("|")]
        if len(columns) != 3 or not all(columns):
            raise self.error(number, "a line is `PATTERN | reason | source`, with none of them empty")
        subject, reason, source = columns
        if subject.startswith("@"):
            self.pairs.append(Pair(*self._pair(number, subject), self.list_name, number, reason, source))
            return
        self._check_pattern(number, subject)
        self.rules[subject] = Rule(subject, self.kind, self.list_name, number, reason, source)

    def _stamp(self, number: int, line: str) -> Stamp:
        match = _CHECKED.fullmatch(line)
        if match is None or self.checked is not None:
            raise self.error(number, "one line of a list may be `# checked: SOURCE, YYYY-MM-DD`")
        return Stamp(f"{self.list_name}.{self.kind}", match[1], match[2])

    def _list_to_include(self, number: int, line: str) -> str:
        name = line.removeprefix("@include ").strip()
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", name) or name in (self.list_name, "common"):
            raise self.error(number, "`@include` takes the name of one other backend's lists")
        return name

    def _check_pattern(self, number: int, pattern: str) -> None:
        if not PATTERN.fullmatch(pattern) or len(pattern) > MAX_NAME:
            raise self.error(number, "a pattern is a variable's name, or the beginning of one and a last `*`")
        if pattern.endswith("*") and len(pattern) <= MIN_PREFIX:
            raise self.error(number, f"a prefix has at least {MIN_PREFIX} characters before its `*`")
        if pattern in self.rules:
            raise self.error(number, f"{pattern} is in line {self.rules[pattern].line} already")

    def _pair(self, number: int, subject: str) -> tuple[str, tuple[str, ...]]:
        match = re.fullmatch(r"@pair ([A-Za-z_][A-Za-z0-9_]*):((?: +[A-Za-z_][A-Za-z0-9_]*)+)", subject)
        if match is None or self.kind != "scrub":
            raise self.error(number, "a directive is `@include LIST`, or in a scrub list `@pair ENDPOINT: KEY ...`")
        return match[1], tuple(match[2].split())

    def error(self, number: int, why: str) -> ConfigurationError:
        """Return the error for a line of this list."""
        message = f"cannot use the scrub list {self.origin}, because of line {number}: {why}"
        return ConfigurationError(
            message, hint="correct that line (docs/reference/environment.md says how)", line=number
        )
