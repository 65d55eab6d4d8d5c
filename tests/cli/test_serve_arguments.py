"""The flags of `clisup serve` mean the same by hand as by click."""

from __future__ import annotations

from typing import Any

import click
import pytest

from clisup.cli.commands.daemon.serve import command
from clisup.cli.commands.daemon.serve_arguments import parse
from clisup.daemon.start import Flags

GOOD = (
    [],
    ["--check"],
    ["--config", "a.toml", "--socket=/s", "--state-dir", "/d"],
    ["--config=a=b", "--log-format", "json", "--check"],
    ["--socket", "--check"],
    ["--socket", "a", "--socket", "b"],
    ["--state-dir="],
)
FOR_CLICK = (
    ["--help"],
    ["--config"],
    ["--log-format", "xml"],
    ["--check=1"],
    ["extra"],
    ["--nope", "1"],
    ["--", "--check"],
    ["-c", "a"],
)


def by_click(args: list[str]) -> Flags:
    found: dict[str, Any] = command.make_context("serve", list(args)).params
    return Flags(**found)


@pytest.mark.parametrize("args", GOOD, ids=" ".join)
def test_what_is_right_is_read_as_click_reads_it(args: list[str]) -> None:
    assert (found := parse(args)) is not None
    assert Flags(**found) == by_click(args)


@pytest.mark.parametrize("args", FOR_CLICK, ids=" ".join)
def test_what_is_wrong_or_asks_for_help_is_left_to_click(args: list[str]) -> None:
    assert parse(args) is None


def test_click_knows_no_flag_that_is_not_read_by_hand() -> None:
    flags = {option for param in command.params if isinstance(param, click.Option) for option in param.opts}
    assert all(parse([flag, "auto"] if flag != "--check" else [flag]) is not None for flag in flags)
