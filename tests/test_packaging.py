"""What is shipped: a wheel that works where no checkout is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
FIND = "import json; from clisup.host.scrub_files import lists_directory; print(lists_directory('claude'))"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content in a folder of its own, as an installer would lay it out."""
    target = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(target)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    with zipfile.ZipFile(target / done.stdout.split()[-1]) as wheel:
        wheel.extractall(target / "site")
    return target / "site"


def _python(code: str, site: Path, cwd: Path) -> str:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=cwd, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_wheel_brings_its_scrub_lists(unpacked: Path, tmp_path: Path) -> None:
    assert Path(_python(FIND, unpacked, tmp_path)) == unpacked / "clisup" / "scrub_lists"


def test_a_checkout_finds_the_lists_beside_the_package(tmp_path: Path) -> None:
    assert Path(_python(FIND, ROOT, tmp_path)) == ROOT / "scrub_lists"


def test_a_wheel_brings_the_keeper_the_demo_and_the_units(unpacked: Path) -> None:
    units = tuple(f"systemd_units/{file.name}" for file in (ROOT / "systemd").iterdir())
    wanted = ("keeper/__main__.py", "keeper/keeper.py", "bridge/bridge.py", "demo/__main__.py", "py.typed", *units)
    for name in (*wanted, "backends/known_fields/claude.json"):
        assert (unpacked / "clisup" / name).is_file(), name


def test_an_installed_clisup_finds_its_units(unpacked: Path, tmp_path: Path) -> None:
    find = "from clisup.host.systemd.units import shipped_unit; print(shipped_unit('clisup@.service'), end='')"
    assert _python(find, unpacked, tmp_path) == (ROOT / "systemd" / "clisup@.service").read_text().strip()
    assert _python(find, ROOT, tmp_path) == (ROOT / "systemd" / "clisup@.service").read_text().strip()


def test_a_wheel_brings_the_manual_pages_to_where_man_looks(unpacked: Path) -> None:
    pages = next(unpacked.glob("clisup-*.data/data/share/man/man1"))
    assert {page.name for page in pages.iterdir()} == {page.name for page in (ROOT / "man").iterdir()}


def test_a_wheel_names_the_command_and_the_backends(unpacked: Path) -> None:
    text = next(unpacked.glob("clisup-*.dist-info/entry_points.txt")).read_text()
    assert "clisup = clisup.__main__:main" in text
    assert "claude = clisup.backends.claude.adapter:ClaudeAdapter" in text


def test_a_demo_turn_needs_nothing_of_the_checkout(unpacked: Path, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    main = unpacked / "clisup" / "demo" / "__main__.py"
    argv = [sys.executable, "-I", "-S", str(main), "-p", "--output-format", "stream-json", "--verbose"]
    done = subprocess.run(argv, env=env, cwd=tmp_path, input="hello", capture_output=True, text=True, check=True)
    assert "You said: hello" in done.stdout


def test_no_file_of_the_project_refers_to_what_only_its_makers_have() -> None:
    """Users do not have the founders' folders, and no registry's host belongs into a commit."""
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    secret = ("work" + "/shared", "../" + "shared", "file" + "s.pythonhosted", "registry" + ".npmjs")
    for name in filter(None, files):
        text = (ROOT / name).read_bytes().decode("utf-8", "replace") if (ROOT / name).is_file() else ""
        assert not [word for word in secret if word in text], name


def test_the_forges_workflow_runs_every_lane_of_ci() -> None:
    listed = subprocess.run([ROOT / ".ci/run", "--list"], capture_output=True, text=True, check=True).stdout
    lanes = [line.split()[0] for line in listed.splitlines()]
    (matrix,) = re.findall(r"lane: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    assert len(lanes) > 5 and sorted(matrix.split(", ")) == sorted(lanes)


def test_ci_refuses_a_lane_that_it_does_not_have() -> None:
    refused = subprocess.run([ROOT / ".ci/run", "test", "nosuch"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "no lane is named nosuch" in refused.stderr
