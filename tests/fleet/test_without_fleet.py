"""Who has no fleet pays nothing for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clisup.cli.fleet import extra
from clisup.errors import ConfigurationError

LOOK = """
import sys
{code}
found = [name for name in sys.modules if name.startswith("clisup.fleet") or name in ("nats", "nkeys")]
print("loaded:", found)
"""
STATUS = """
opened = []
FILES = ("fleet.sock", "fleet.json", "fleet-", "/fleet/")
def hook(event, args):
    if event in ("open", "socket.connect") and any(name in str(args) for name in FILES):
        opened.append(args)
sys.addaudithook(hook)
from clisup.cli.main import main
try:
    main(["status"])
except SystemExit:
    pass
assert not opened, opened
"""


def loaded(code: str, home: Path) -> str:
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "CLISUP_SOCKET": str(home / "none.sock")}
    done = subprocess.run([sys.executable, "-c", LOOK.format(code=code)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("code", ["import clisup.daemon.app", STATUS], ids=["daemon", "status"])
def test_nothing_of_the_fleet_is_loaded_or_opened(code: str, tmp_path: Path) -> None:
    assert loaded(code, tmp_path) == "loaded: []"


def test_the_look_sees_what_is_loaded(tmp_path: Path) -> None:
    assert "clisup.fleet.chain" in loaded("import clisup.fleet.chain", tmp_path)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="nats, nkeys") as caught:
        extra.check_extra()
    assert caught.value.hint == 'pip install "clisup[fleet]"'
