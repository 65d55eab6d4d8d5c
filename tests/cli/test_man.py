"""The manual pages: made from the command tree, in step with it, and without a fault that man, groff or mandoc would tell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from clisup import __version__
from clisup.cli.commands.manual import page, pages
from clisup.cli.root import GROUPS, root

MAN = Path(__file__).parents[2] / "man"
assert isinstance(root, click.Group)
PAGES = pages(root, GROUPS, __version__)
CHECKS = {
    "groff": ["groff", "-ww", "-man", "-Tutf8"],
    "mandoc": ["mandoc", "-Tlint", "-Wwarning"],
    "man": ["man", "--warnings", "-l", "-Tutf8"],
}


def test_the_pages_in_the_tree_are_those_that_the_commands_make() -> None:
    stored = {path.name: path.read_text() for path in MAN.iterdir()}
    assert stored == PAGES, "the commands have changed: make man"


def test_every_command_and_subcommand_has_a_page() -> None:
    assert {f"clisup-{name}.1" for names in GROUPS.values() for name in names} < set(PAGES)
    assert {"clisup.1", "clisup-approvals-allow.1", "clisup-daemon-restart.1"} < set(PAGES)


@pytest.mark.parametrize("checker", CHECKS)
@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_has_no_fault(name: str, checker: str) -> None:
    if shutil.which(checker) is None:
        pytest.skip(f"{checker} is not installed here")
    done = subprocess.run([*CHECKS[checker], str(MAN / name)], capture_output=True, text=True, check=False)
    said = done.stderr + (done.stdout if checker == "mandoc" else "")
    assert [line for line in said.splitlines() if "missing date" not in line] == []


def test_a_page_says_what_the_help_says() -> None:
    text = PAGES["clisup-run.1"]
    assert ".SH OPTIONS" in text and "\\fB\\-b, \\-\\-backend BACKEND\\fR" in text
    assert ".SH EXIT STATUS" in text and "124 timed out" in text
    assert '.SH EXAMPLES\n.RS 4\n.nf\nclisup run \\-b claude "Which files' in text
    assert ".BR clisup (1)" in text


def test_what_is_copied_out_of_a_page_is_what_was_meant() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed here")
    argv = ["groff", "-man", "-Tascii", "-P-cbou", str(MAN / "clisup-run.1")]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "git diff | clisup run -b claude -C ~/src/app --model sonnet -" in shown


@pytest.fixture
def hostile() -> Iterator[click.Group]:
    yield click.Group(
        "root", help="Do it.\n\n.TH is no request\n\n'nor this \\fB -- ~ é", commands={"sub": click.Command("sub")}
    )


def test_no_text_is_taken_for_a_request(hostile: click.Group) -> None:
    text = page(hostile, (), {"All": ("sub",)}, "1")
    assert "\n\\&.TH is no request\n" in text
    assert "\\(aqnor this \\efB \\-\\- \\(ti \\[u00E9]" in text
    with pytest.raises(KeyError):
        page(hostile, ("none",), {}, "1")


def test_the_command_prints_one_page_and_writes_all(
    clisup: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    assert clisup("man", "approvals", "deny")[:2] == (0, PAGES["clisup-approvals-deny.1"])
    (tmp_path / "clisup-gone.1").touch()
    assert clisup("man", "--directory", str(tmp_path))[0] == 0
    assert {path.name for path in tmp_path.iterdir() if path.suffix == ".1"} == set(PAGES)
    code, _, said = clisup("man", "nope")
    assert code == 2 and "no such command" in said


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Give the next commands a terminal, and a PATH of one directory."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("PATH", str(path))


def test_on_a_terminal_man_shows_the_page(
    clisup: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "man"
    fake.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/args\n/bin/cat > {tmp_path}/page\n')
    fake.chmod(0o755)
    on_a_terminal(monkeypatch, tmp_path)
    assert clisup("man", "run")[:2] == (0, "")
    assert (tmp_path / "page").read_text() == PAGES["clisup-run.1"]
    assert (tmp_path / "args").read_text() == "-l -\n"
    assert clisup("man", "--roff", "run")[1] == PAGES["clisup-run.1"]


@pytest.mark.parametrize("stub", [None, "#!/bin/sh\nexit 1\n", "no program"])
def test_on_a_terminal_without_a_working_man_the_help_is_shown(
    clisup: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub: str | None
) -> None:
    if stub is not None:
        (tmp_path / "man").write_text(stub)
        (tmp_path / "man").chmod(0o755)
    on_a_terminal(monkeypatch, tmp_path)
    shown: list[str] = []
    monkeypatch.setattr(click, "echo_via_pager", shown.append)
    assert clisup("man", "approvals", "deny")[:2] == (0, "")
    assert shown[0].startswith("Usage: clisup approvals deny") and ".SH" not in shown[0]


def test_a_directory_that_cannot_be_written_is_named(
    clisup: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, out, err = clisup("man", "--directory", "/proc/foo")
    assert (code, out) == (2, "")
    assert err.startswith(
        "clisup: cannot write the pages into /proc/foo, because of /proc/foo: No such file or directory"
    )
    (tmp_path / "clisup-run.1").mkdir()
    code, out, err = clisup("man", "--directory", str(tmp_path))
    assert f"because of {tmp_path}/clisup-run.1: Is a directory" in err
