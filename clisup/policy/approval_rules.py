"""Rules for approvals: which tool calls are allowed, denied, or put to a person. Pure.

A rule matches a request by the name of the tool. A rule may also match the command or the paths in the tool's input. A
matching deny rule of the session or of the backend always wins, so that no other rule can loosen it. Otherwise the
first matching rule wins, and the session's rules come before the backend's. Without a matching rule a person is asked.

An `allow` must be certain; a `deny` or an `ask` need only be likely. For `allow`, a command may hold no shell syntax,
and every path of the request must match, both by name and with resolved links. For `deny` and `ask`, a single matching
piece of a single text is enough, wherever it stands in the input. Rules read text, and do not know what a program does
with its arguments.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator

Decision = Literal["allow", "deny", "ask"]
Pattern = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f]*$")]
MAX_RULES = 256
PATH_LIMIT = 4096

_SHELL = re.compile(r"[;&|<>()$`\\{}\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters with which a shell does more than run one program with these words. A tab counts as a blank."""

TEXT_LIMIT = 256 * 1024
"""Most characters of an input that rules with a command read. A deny matches an input with more."""
DEPTH_LIMIT = 32
_CUT = re.compile(r"&&|\|\||[;&|\n\r()`{}]|\$\(|<\(|>\(")
_CUT_QUOTES = re.compile(r"[;&|\n\r()`{}'\"]")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_CODE_NAME = re.compile(r"^(command|cmd|script|code|shell|stdin|exec|program|args|argv|arguments|env)", re.IGNORECASE)
"""Names of members that may hold a command, or change what a command does."""
_PATH_NAME = re.compile(r"path|file|dir|folder|ur[il]$|root|target|dest|location", re.IGNORECASE)
_NO_PATH_NAME = re.compile(r"(text|content|type|size|mode|encoding|pattern|format|diff)s?$", re.IGNORECASE)
_COMMAND_KEYS = ("command", "cmd")
_WORD_KEYS = ("args", "arguments", "argv")
_PATH_KEYS = (
    "file_path", "path", "notebook_path", "absolute_path", "dir_path", "directory", "filePath", "old_path", "new_path",
    "move_path", "grant_root",
)  # fmt: skip
_LIST_KEYS = ("paths", "file_paths", "locations", "changes", "edits")
_MORE_RIGHTS = ("additional_permissions", "dangerouslyDisableSandbox", "env", "environment")
"""Members of an input that ask for more rights, or change what a command does. No rule for a command allows such members."""


class ApprovalRule(BaseModel):
    """Rule for approvals.

    `tool` is a pattern of the tool's name, `path` and `command` are patterns of its input; all must match. `*` is any
    text and `?` one character; nothing else is special. In a path `*` does not cross a slash, and `**` between two
    slashes does. A pattern without a leading slash is below the session's directory. With `shell`, an `allow` for a
    command holds although the command has shell syntax in it. `approval_resolved` shows `name` for the rule.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tool: Pattern
    decision: Decision
    path: Pattern | None = None
    command: Pattern | None = None
    shell: bool = False
    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")] | None = None

    @field_validator("path")
    @classmethod
    def _no_dots(cls, value: str | None) -> str | None:
        parts = (value or "").split("/")
        if {".", ".."} & set(parts):
            raise ValueError(
                "a path pattern may not hold . or .. as a part: paths are made plain before they are matched"
            )
        if any("**" in part and part != "**" for part in parts):
            raise ValueError("in a path pattern ** must stand alone between slashes")
        return value


class ToolQuestion(NamedTuple):
    """Request for the rules. `real` are its paths with resolved links, empty if no caller resolved links.

    `cwd` is the session's directory, where relative paths begin.
    """

    tool: str
    input: Mapping[str, Any]
    cwd: str
    real: Sequence[str] = ()
    real_cwd: str | None = None


class Judgement(NamedTuple):
    """Decision of the rules, and the deciding rule.

    `rule` is the rule's name, or its place (`session 1`, `backend 3`), or None if no rule matched.
    """

    decision: Decision
    rule: str | None = None


def judge(asked: ToolQuestion, session: Sequence[ApprovalRule], backend: Sequence[ApprovalRule]) -> Judgement:
    """Return the decision of the rules. Never raises: a request or rule that cannot be judged is denied."""
    try:
        matching = list(_matching(asked, session, backend))
    except Exception:  # an error of any kind must not become an allow
        return Judgement("deny", "error: the request could not be judged")
    denied = next((word for word in matching if word.decision == "deny"), None)
    return denied or next(iter(matching), Judgement("ask"))


def _matching(
    asked: ToolQuestion, session: Sequence[ApprovalRule], backend: Sequence[ApprovalRule]
) -> Iterator[Judgement]:
    pieces = cache(lambda: _pieces_of(asked.input))
    for whose, rules in (("session", session), ("backend", backend)):
        for at, rule in enumerate(rules):
            if _matches(rule, asked, pieces):
                yield Judgement(rule.decision, rule.name or f"{whose} {at + 1}")


def _matches(rule: ApprovalRule, asked: ToolQuestion, pieces: Callable[[], frozenset[str] | None]) -> bool:
    strict = rule.decision == "allow"
    return (
        _any_fits(rule.tool, (asked.tool,) if strict else (asked.tool, _folded(asked.tool)), strict=strict)
        and (
            rule.command is None
            or (_is_allowed(rule, asked, rule.command) if strict else _is_in(rule.command, pieces()))
        )
        and (rule.path is None or _paths_match(rule, asked, rule.path))
    )


# Commands


def commands_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return each text in a tool's input that may be a command line. A list of words is joined into a line.

    The result covers all known members, because each tool chooses its own member. Each command stands in the
    result alone and with the words of the argument members. Raises ValueError if a member is not a command.
    """
    commands = [_line(key, arguments[key]) for key in _COMMAND_KEYS if arguments.get(key) is not None]
    words = [_line(key, arguments[key]) for key in _WORD_KEYS if commands and arguments.get(key)]
    return commands + [f"{command} {more}" for command in commands for more in words]


def _line(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    raise ValueError(f"{key} is no command")


def _is_allowed(rule: ApprovalRule, asked: ToolQuestion, pattern: str) -> bool:
    """Tell whether an allow matches the only command of the input, and all else that may be a command."""
    try:
        commands = commands_of(asked.input)
        if len(commands) != 1:  # the tool may run the second command
            return False
        beside = [
            text for name, value in asked.input.items() if name not in _COMMAND_KEYS for text in _code(name, value)
        ]
    except ValueError:
        return False
    if any(asked.input.get(name) for name in _MORE_RIGHTS):
        return False
    return all(_is_plain(rule, text) and _glob(pattern).fullmatch(text) is not None for text in [*commands, *beside])


def _is_in(pattern: str, pieces: frozenset[str] | None) -> bool:
    """Tell whether a deny or ask matches one of the pieces. None: the input cannot be judged."""
    return pieces is None or _any_fits(pattern, pieces, strict=False)


def _is_plain(rule: ApprovalRule, command: str) -> bool:
    return rule.shell or not _SHELL.search(command)


def _pieces_of(arguments: Mapping[str, Any]) -> frozenset[str] | None:
    """Return each text of the input, and each part of one that a shell may run, as it is and folded, with single blanks.

    Return None for an input that cannot be judged.
    """
    pieces = set[str]()
    try:
        for text in {*commands_of(arguments), *texts_of(arguments)}:
            for form in {text, _folded(text)}:
                cut = {form, *_CUT.split(form), *_CUT_QUOTES.split(form)}
                pieces |= {text, *(" ".join(piece.split()) for piece in cut)}
    except ValueError:
        return None
    return frozenset(pieces)


# Texts at any depth


class _Walk:
    """Walk through a tool's input. Raises ValueError for an input that is too large or too deep to judge."""

    def __init__(self) -> None:
        self._left = TEXT_LIMIT

    def parts(self, value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of each table, list and text in `value`. An item of a list has the name of its list."""
        self._left -= len(value) + 1 if isinstance(value, str) else 1
        if self._left < 0 or depth > DEPTH_LIMIT:
            raise ValueError("an input too large to judge")
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, Mapping):
            yield name, value
            for key, part in value.items():
                yield from self.parts(part, str(key), depth + 1)
        elif isinstance(value, list | tuple):
            yield name, value
            for part in value:
                yield from self.parts(part, name, depth + 1)


def texts_of(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield every text in a tool's input. A list of words is also a line, alone and after each text beside it.

    Raises ValueError for an input that is too large to judge.
    """
    left = TEXT_LIMIT
    for _, value in _Walk().parts(arguments):
        for text in (value,) if isinstance(value, str) else _lines(value):
            left -= len(text) + 1
            if left < -TEXT_LIMIT:
                raise ValueError("an input too large to judge")
            yield text


def _lines(value: Mapping[str, Any] | Sequence[Any]) -> Iterator[str]:
    if not isinstance(value, Mapping):
        if line := _words(value):
            yield line
            yield " ".join(map(str, value))
        return
    lines = [line for part in value.values() if isinstance(part, list | tuple) and (line := _words(part))]
    for text in value.values() if lines else ():
        if isinstance(text, str):
            yield from (f"{text} {line}" for line in lines)


def _words(value: Sequence[Any]) -> str:
    """Return a list of words as a line, or an empty text for another list."""
    whole = len(value) > 0 and all(isinstance(word, str | int | float) for word in value)
    return shlex.join(map(str, value)) if whole else ""


def _code(name: str, value: Any) -> Iterator[str]:
    """Yield the texts in the member `name` that may be, or change, a command."""
    for inner, part in _Walk().parts(value, name):
        if isinstance(part, str) and part and (_CODE_NAME.search(inner) or _CODE_NAME.search(name)):
            yield part


def _any_fits(pattern: str, texts: Iterable[str], *, strict: bool) -> bool:
    """Tell whether a text matches. Without `strict`, the texts come folded, too: case and width do not count."""
    fits, folded = _glob(pattern).fullmatch, _glob(pattern if strict else _folded(pattern)).fullmatch
    return any(fits(text) or folded(text) for text in texts)


def _folded(text: str) -> str:
    return (text if text.isascii() else unicodedata.normalize("NFKC", _UNSEEN.sub("", text))).casefold()


# Paths


def paths_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return the paths in a tool's input: in the known members, and in each member that is named like a path.

    Raises ValueError for an invalid path, or an input that is too large to judge.
    """
    found = _named(arguments)
    for key in _LIST_KEYS:
        for item in _items(arguments.get(key)):
            found += _named(item) if isinstance(item, Mapping) else [_path(item)]
    for name, value in _Walk().parts(arguments):
        if isinstance(value, str) and value and _PATH_NAME.search(name) and not _NO_PATH_NAME.search(name):
            found.append(_path(value.removeprefix("file://")))
    return list(dict.fromkeys(found))


def _path_like(arguments: Mapping[str, Any], cwd: str) -> Iterator[str]:
    """Yield each text and each name of a member that holds a slash and can be a path, as an absolute path."""
    for _, value in _Walk().parts(arguments):
        for text in (value,) if isinstance(value, str) else value if isinstance(value, Mapping) else ():
            if isinstance(text, str) and "/" in text and len(text) <= PATH_LIMIT and not _SHELL.search(text):
                with suppress(ValueError):
                    yield lexical(text, cwd)


def _named(table: Mapping[str, Any]) -> list[str]:
    return [_path(table[key]) for key in _PATH_KEYS if table.get(key) is not None]


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _path(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= PATH_LIMIT or "\0" in value:
        raise ValueError("a path that is none")
    return value


def lexical(path: str, cwd: str) -> str:
    """Return the path as an absolute path without `.`, `..` and doubled slashes. Links are not resolved.

    Raises ValueError if `..` leads above the root. Also raises ValueError for a leading tilde, because tools read a
    tilde in different ways.
    """
    if path.startswith("~"):
        raise ValueError("a path in somebody's home")
    parts: list[str] = []
    for part in posixpath.join(cwd, path).split("/"):
        if part == "..":
            if not parts:
                raise ValueError("a path above the root")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _paths_match(rule: ApprovalRule, asked: ToolQuestion, pattern: str) -> bool:
    strict = rule.decision == "allow"
    try:
        named = paths_of(asked.input)
        plain = [lexical(path, asked.cwd) for path in named]
        plain += [] if strict else _path_like(asked.input, asked.cwd)
    except ValueError:
        return not strict
    below = not pattern.startswith("/")
    found = [_path_fits(f"{asked.cwd}/{pattern}" if below else pattern, path) for path in plain]
    found += [_path_fits(f"{asked.real_cwd or asked.cwd}/{pattern}" if below else pattern, path) for path in asked.real]
    return bool(plain) and (all(found) if strict else any(found))


# Patterns


def _path_fits(pattern: str, path: str) -> bool:
    """Match a path with a pattern, name by name. `**` is any number of directories.

    A final `**` matches everything below: at least one name.
    """
    wanted = [part for part in pattern.split("/") if part]
    names = [name for name in path.split("/") if name]
    if wanted[-1:] == ["**"]:
        wanted.append("*")
    reached = {0}  # the counts of names that the parts so far can match
    for part in wanted:
        if part == "**":
            reached = set(range(min(reached, default=len(names) + 1), len(names) + 1))
        else:
            fits = _glob(part).fullmatch
            reached = {at + 1 for at in reached if at < len(names) and fits(names[at])}
    return len(names) in reached


@lru_cache(maxsize=1024)
def _glob(pattern: str) -> re.Pattern[str]:
    """Compile a pattern with `*` for any text and `?` for a character.

    Each piece between two stars matches at its first place, without backtracking, so that no text takes long.
    """
    first, *rest = re.sub(r"\*+", "*", pattern).split("*")
    if not rest:
        return re.compile(_literal(first), re.DOTALL)
    between = "".join(f"(?>.*?{_literal(piece)})" for piece in rest[:-1])
    return re.compile(f"{_literal(first)}{between}.*{_literal(rest[-1])}", re.DOTALL)


def _literal(text: str) -> str:
    return "".join("." if character == "?" else re.escape(character) for character in text)
