"""Units of systemd: shipped unit files, files that a manager reads, and commands to a manager through `systemctl`.

`clisup install` writes the shipped text with the path of this clisup, and a sum that shows later edits. Commands run
one at a time, each with a time limit, and get only the environment that leads to the manager.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from clisup.errors import ConfigurationError, WorldError
from clisup.locations import config_home

Standing = Literal["new", "same", "older", "edited"]
"""State of an existing unit file: none, identical, written by an earlier install, or edited by a user."""

_COMMAND = re.compile(r"^(Exec(?:Start|Reload)=)(?:%h|/opt)\S*/bin/clisup\b", re.MULTILINE)
_HEADER = re.compile(r"# Written by `clisup install`[^\n]*\n# [^\n]*sum ([0-9a-f]{16})\n")


def unit_word(text: str) -> str:
    """Return a path as the first word of `ExecStart=` (systemd.service(5), command lines): quoted, with % and $
    escaped."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if re.search(r"[\s\"'\\;]", text) else plain


def path_line(search_path: str) -> str:
    """Return the line of a unit that sets PATH: quoted, with % and quotes escaped (systemd.exec(5), `Environment=`)."""
    plain = search_path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'Environment="PATH={plain}"'


def unit_text(shipped: str, executable: str, version: str, replaced: dict[str, str] | None = None) -> str:
    """Return the file to write. `replaced` maps whole lines of the shipped text to their replacements."""
    body = _COMMAND.sub(lambda match: match[1] + unit_word(executable), shipped)
    for line, other in (replaced or {}).items():
        body = body.replace(f"\n{line}\n", f"\n{other}\n")
    return (
        f"# Written by `clisup install` of clisup {version}. Own settings belong into a drop-in (systemctl edit): an edit here\n"
        f"# stops the next install, which tells it by the sum {_sum(body)}\n{body}"
    )


def standing_of(found: str | None, wanted: str, shipped: str) -> Standing:
    """Return how `found` relates to `wanted`. Only an `edited` file must not be replaced.

    An unchanged copy of the shipped file counts as `older`.
    """
    if found is None:
        return "new"
    if found == wanted:
        return "same"
    header = _HEADER.match(found)
    ours = found == shipped or (header is not None and _sum(found[header.end() :]) == header[1])
    return "older" if ours else "edited"


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


SYSTEM_UNITS = "/etc/systemd/system"
UNIT_LIMIT = 256 * 1024


def user_units(env: Mapping[str, str]) -> str:
    """Return the directory that a user's manager searches first for units of no package (systemd.unit(5))."""
    return os.path.join(config_home(env), "systemd", "user")


def shipped_unit(name: str) -> str:
    """Return the text of a shipped unit: package data in a wheel, `systemd/` in a checkout.

    Raises `ConfigurationError`.
    """
    package = Path(__file__).resolve().parents[2]
    for directory in (package / "systemd_units", package.parent / "systemd"):
        try:
            return (directory / name).read_text(encoding="utf-8")
        except OSError:
            continue
    raise ConfigurationError(f"cannot find {name}, because this clisup is incomplete", hint="install it anew")


def read_unit(path: str) -> str | None:
    """Return the text of a unit, or None if there is no file. Raises `WorldError(storage_failed)`."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(UNIT_LIMIT)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failed("read", path, error) from None


def write_unit(path: str, text: str) -> None:
    """Write a unit as a whole, readable by all as units are. Raises `WorldError(storage_failed)`."""
    scratch = f"{path}.{os.getpid()}.tmp"  # no manager reads a file with this suffix
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(scratch, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.rename(scratch, path)
    except OSError as error:
        raise _failed("write", path, error) from None


def remove_unit(path: str) -> None:
    """Remove a unit, and its directory of drop-ins if that is then empty. Raises `WorldError(storage_failed)`."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failed("remove", path, error) from None
    if os.path.dirname(path).endswith(".d"):
        try:
            os.rmdir(os.path.dirname(path))
        except OSError:
            pass  # the directory holds drop-ins of the user


def _failed(what: str, path: str, error: OSError) -> WorldError:
    return WorldError(
        f"cannot {what} {path}, because of: {error.strerror}",
        kind="storage_failed",
        hint="for a unit of the system: with sudo; else check the directory's owner",
    )


ASK_LIMIT_S = 10.0
ORDER_LIMIT_S = 600.0  # a stop waits for `drain_s`, and an operator may set a long one
_PASSED = (
    "PATH", "HOME", "USER", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS",
)  # fmt: skip
_ELSE = "where there is no systemd, run `clisup serve` under the supervisor that you have"


class ServiceManager:
    """The user's own manager, or the system's."""

    def __init__(self, env: Mapping[str, str], *, user: bool) -> None:
        self.user = user
        self._env = {name: env[name] for name in _PASSED if name in env} | {"LC_ALL": "C", "SYSTEMD_PAGER": ""}
        self._program = shutil.which("systemctl", path=env.get("PATH", os.defpath))

    def words(self, *words: str) -> str:
        """Return the command as a user would type it."""
        return " ".join(("systemctl", *(("--user",) if self.user else ()), *words))

    def check(self) -> None:
        """Raise `WorldError(service_manager)` if no manager answers."""
        code, _, said = self._run(ASK_LIMIT_S, "show", "--property=Version")
        if code == 0:
            return
        whose = "your own systemd manager" if self.user else "the system's systemd"
        hint = (
            "log in as that user itself (ssh, a console, machinectl shell): su and sudo start no manager"
            if self.user
            else _ELSE
        )
        raise WorldError(
            f"cannot change units of systemd, because {whose} does not answer ({said or 'it says nothing'})",
            kind="service_manager",
            hint=hint,
        )

    def ask(self, *words: str) -> str:
        """Return the answer on stdout, or "" if the manager does not answer."""
        return self._run(ASK_LIMIT_S, *words)[1]

    def order(self, *words: str) -> None:
        """Carry out a command. Raises `WorldError(service_manager)` with the manager's message if it refuses."""
        code, _, said = self._run(ORDER_LIMIT_S, *words)
        if code != 0:
            raise WorldError(
                f"cannot carry out `{self.words(*words)}`, because it says: {said or f'status {code}'}",
                kind="service_manager",
                hint="its log says more: journalctl" + (" --user" if self.user else "") + " -e -u 'clisup*'",
            )

    def _run(self, limit_s: float, *words: str) -> tuple[int, str, str]:
        if self._program is None:
            raise WorldError(
                "cannot change units of systemd, because there is no systemctl here", kind="service_manager", hint=_ELSE
            )
        command = [self._program, *(["--user"] if self.user else []), *words]
        try:
            done = subprocess.run(
                command, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, "", f"no answer within {limit_s:g} s"
        except OSError as error:
            return 1, "", error.strerror or "it cannot be started"
        said = done.stderr.strip().splitlines()
        return done.returncode, done.stdout.strip(), said[0] if said else ""
