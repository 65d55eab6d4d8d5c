"""Every command of the README and of docs/ is one that clisup takes, and is run: a page that shows what does not work fails."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from clisup.cli.root import GROUPS
from tests.docs.blocks import PAGES, Command, blocks, commands, is_console, name_of, prose, simple_commands
from tests.docs.clicked import Unknown, check, check_mention, command_of
from tests.docs.scene import ENDLESS_S, Scene
from tests.docs.tables import BEFORE, ENDLESS, ENDS_WITH, NOT_RUN, found

TOOLS = ("jq", "nc", "curl")
TYPED: list[Command] = [
    command
    for path in PAGES
    for block in blocks(path)
    if is_console(block) or block.language in ("sh", "bash")
    for command in commands(block)
]
RUN = {command.page for command in TYPED if found(NOT_RUN, command.text) is None}


@pytest.mark.parametrize("command", TYPED, ids=lambda command: command.at)
def test_clisup_takes_the_line(command: Command) -> None:
    for words in simple_commands(command.text):
        if words[0] == "clisup":
            try:
                check(words[1:])
            except Unknown as error:
                pytest.fail(f"{command.at}: {command.text}\n{error}")


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_command_mentioned_in_a_sentence_is_there_with_its_options(path: Path) -> None:
    wrong = []
    for mention in re.findall(r"`clisup ([^`]+)`", prose(path)):
        words = re.sub(r"[\[\],()]|\.\.\.", " ", mention).split()
        try:
            check_mention(words)
        except Unknown as error:
            wrong.append(f"clisup {mention}: {error}")
    assert wrong == []


def lacks(command: Command) -> set[str]:
    """The tools beside clisup that the line needs and this machine does not have. A machine of CI has to."""
    missing = {words[0] for words in simple_commands(command.text) if words[0] in TOOLS and not shutil.which(words[0])}
    if missing and os.environ.get("CLISUP_CI"):
        pytest.fail(f"{command.at} needs {missing}")
    return missing


def type_line(scene: Scene, command: Command) -> None:
    """One line of a page, with what has to be there before and after it."""
    serve = re.match(r"clisup serve\b.*&", command.text)
    if serve and scene.serves():
        assert scene.run("clisup stop --mode kill") == 0
    if not serve and not scene.serves():
        scene.start()
    if (pattern := found(BEFORE, command.text)) is not None:
        BEFORE[pattern](scene)
    line = scene.real(command.text)
    endless = any(re.search(pattern, line) for pattern in ENDLESS)
    if endless:
        head, pipe, rest = line.partition(" | ")
        line = f"timeout -s INT {ENDLESS_S} {head}{pipe}{rest}"
    code = scene.run(line)
    wanted = ENDS_WITH.get(found(ENDS_WITH, command.text) or "", 0)
    assert code in ((124, 0) if endless else (wanted,)), f"{command.at}: {line}\nends with {code}: {scene.said}"
    if serve:
        scene.await_served()
    elif re.match(r"clisup stop\b", command.text):
        scene.await_gone()


@pytest.mark.parametrize("page", sorted(RUN))
def test_the_commands_of_a_page_work_one_after_the_other(page: str) -> None:
    with Scene() as scene:
        for command in TYPED:
            if command.page == page and found(NOT_RUN, command.text) is None and not lacks(command):
                type_line(scene, command)


@pytest.mark.parametrize("table", [NOT_RUN, ENDS_WITH, BEFORE], ids=["not run", "ends with", "before"])
def test_no_exemption_outlives_its_line(table: dict[str, Any]) -> None:
    texts = [command.text for command in TYPED]
    assert [pattern for pattern in table if not any(re.search(pattern, text, re.MULTILINE) for text in texts)] == []


@pytest.mark.parametrize("name", [name for names in GROUPS.values() for name in names])
def test_the_example_in_a_commands_help_is_a_line_that_clisup_takes(name: str) -> None:
    command, _ = command_of([name])
    texts = [command.help or "", *(sub.help or "" for sub in getattr(command, "commands", {}).values())]
    lines = [line.strip() for text in texts for line in text.splitlines() if re.match(r"\s+(\S+ \| )?clisup ", line)]
    assert lines, f"the help of {name} has no example"
    for line in lines:
        for words in simple_commands(line):
            if words[0] == "clisup":
                check(words[1:])
