"""What a docstring says of a function and of its parameters: Google's sections and Sphinx's fields. Pure."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import NamedTuple

__all__ = ["FunctionDoc", "read_docstring"]

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?|See Also|Warnings?):\s*$"
)
_PARAMETER_SECTIONS = frozenset({"Args", "Arguments", "Parameters", "Params"})
_SPOKEN_SECTIONS = frozenset({"Example", "Examples", "Note", "Notes", "Warning", "Warnings"})
_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_FIELD = re.compile(r":(?P<what>\w+)(?:\s+[^:]*?(?P<name>\w+))?:\s*(?P<text>.*)$")


class FunctionDoc(NamedTuple):
    """`text` is for whoever decides to call the function; `parameters` has what is said of each one, by name."""

    text: str
    parameters: dict[str, str]


def read_docstring(docstring: str | None) -> FunctionDoc:
    """Part a docstring. What it returns and raises is left out: a caller who reads the answer sees it.

    `Args:` (also Arguments, Parameters, Params) with one indented `name: text` or `name (type): text` each, and Sphinx's
    `:param name: text`, are taken; all else, in whatever form, stays in the text.
    """
    text: list[str] = []
    parameters: dict[str, list[str]] = {}
    section, item, depth = "", "", 0
    for line in cleandoc(docstring or "").splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 0 and line.strip():
            field = _FIELD.match(line)
            heading = _SECTION.match(line)
            section = "Field" if field else heading.group(1) if heading else ""
            item, depth = "", 0
            if field and field["what"] == "param" and field["name"]:
                item = field["name"]
                parameters[item] = [field["text"]]
                continue
        if section in _PARAMETER_SECTIONS and indent:
            depth = depth or indent
            if indent == depth and (found := _ITEM.match(line.strip())):
                item = found.group(1)
                parameters[item] = [found.group(2)]
                continue
        if item and line.strip():
            parameters[item].append(line.strip())
        elif section == "" or section in _SPOKEN_SECTIONS:
            text.append(line)
    return FunctionDoc("\n".join(text).strip(), {name: " ".join(lines).strip() for name, lines in parameters.items()})
