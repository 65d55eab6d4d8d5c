"""The shipped unit of the pages under a real systemd, beside the daemon's: kills, restarts, a taken port, and a stop."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import until
from service import COMMAND, KEPT, Service, drop_in, reload_units
from systemd_lab import SystemdLab
from turns import RunningTurn

sys.path.insert(0, str(Path(__file__).parents[1] / "web"))
from web_process import Browser, Stream

from clisup.web.access.tokens import TokenBook

UNIT = "clisup-web.service"
UNDER_USER = pytest.mark.parametrize("running", ["user"], indirect=True, scope="module")


class WebService:
    """The unit in the lab on a port of its own. A `Browser` takes it for the process of the pages."""

    def __init__(self, lab: SystemdLab) -> None:
        self.lab = lab
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = int(taken.getsockname()[1])
        self.origin = f"http://127.0.0.1:{self.port}"
        self.book = TokenBook(str(lab.home / ".local" / "state" / "clisup" / "web"))
        # The lab is below /tmp, which the unit does not see. All else of the unit is as it is shipped, but for the port.
        places = f"BindPaths={lab.root}\nBindReadOnlyPaths={' '.join(KEPT)}\nStandardError=append:{lab.root}/web.log\n"
        drop_in(lab, "user", UNIT, f"{places}ExecStart=\nExecStart=%h/{COMMAND} web --no-start --port {self.port}\n")
        reload_units(lab)

    def systemctl(self, *words: str) -> str:
        return self.lab.systemctl("--user", *words, UNIT)

    def show(self, *names: str) -> dict[str, str]:
        lines = self.systemctl("show", *(f"-p{name}" for name in names)).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def await_pages(self) -> None:
        until(self._serves, lambda: f"no pages: {(self.lab.root / 'web.log').read_text()[-2000:]} {self.lab.said()}")

    def _serves(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0

    def browser(self) -> Browser:
        found = Browser(self)  # type: ignore[arg-type]  # it asks for no more than this
        status, text, _ = found.sign_in(self.book.add_link("phone", "approve"))
        assert status == 200, text
        return found


@pytest.fixture(scope="module")
def unit(lab: SystemdLab) -> WebService:
    return WebService(lab)


@pytest.fixture
def web(unit: WebService, service: Service) -> Iterator[WebService]:
    """The pages serve, and so does the daemon."""
    unit.lab.systemctl("--user", "reset-failed")
    unit.systemctl("start")
    unit.await_pages()
    yield unit
    unit.systemctl("stop")


def keys_until_end(stream: Stream) -> list[str]:
    keys: list[str] = []
    while True:
        message = stream.message()
        assert message is not None, "the stream ended"
        keys += re.findall(r'class="piece" id="(e\d+-\d+)"', message)
        if 'class="end"' in message:
            stream.close()
            return keys


@UNDER_USER
def test_a_killed_page_server_and_a_restarted_daemon_lose_no_piece_and_sign_nobody_out(
    web: WebService, service: Service
) -> None:
    running, browser = RunningTurn(service), web.browser()
    path = f"/sessions/{running.session.id}"
    stream = browser.stream(f"{path}/live?after=0")
    assert stream.message() is not None
    last, before = stream.last, web.show("MainPID")
    web.systemctl("kill", "--signal=KILL", "--kill-who=main")
    stream.close()
    until(lambda: web.show("MainPID")["MainPID"] not in ("0", before["MainPID"]), "systemd does not start it again")
    service.systemctl("restart")
    service.await_daemon()
    web.await_pages()
    again = browser.stream(f"{path}/live?after=0", last)
    running.finish()
    shown = keys_until_end(again)
    whole = re.findall(r'class="piece" id="(e\d+-\d+)"', browser.get(path)[1])
    assert shown and shown == whole[-len(shown) :]


@UNDER_USER
def test_a_stop_of_the_pages_is_clean_and_leaves_the_daemon_and_the_turn(web: WebService, service: Service) -> None:
    running, browser = RunningTurn(service), web.browser()
    stream = browser.stream(f"/sessions/{running.session.id}/live?after=0")
    assert stream.message() is not None
    web.systemctl("stop")
    stream.close()
    assert web.show("ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
    assert running.finish()["text"].endswith("the last word")


@UNDER_USER
def test_a_taken_port_is_tried_once(unit: WebService, service: Service) -> None:
    with socket.create_server(("127.0.0.1", unit.port)):
        unit.lab.inside("systemctl", "--user", "start", UNIT)
        until(lambda: unit.show("ActiveState") == {"ActiveState": "failed"}, "it does not give up")
    assert unit.show("ExecMainStatus", "NRestarts") == {"ExecMainStatus": "78", "NRestarts": "0"}
    assert "cannot listen" in (unit.lab.root / "web.log").read_text()


@UNDER_USER
def test_the_process_has_what_the_unit_says(web: WebService, service: Service) -> None:
    pid = web.show("MainPID")["MainPID"]
    facts = web.lab.inside("cat", f"/proc/{pid}/status").stdout
    assert "NoNewPrivs:\t1" in facts and "Umask:\t0077" in facts
    limits = web.lab.inside("cat", f"/proc/{pid}/limits").stdout
    assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)
    assert web.lab.inside("ls", "-A", f"/proc/{pid}/root/tmp").stdout.split() == [web.lab.root.name]
    web.browser()
    modes = {file.name: file.stat().st_mode & 0o777 for file in Path(web.book.path).parent.iterdir()}
    assert set(modes.values()) == {0o600} and {"tokens.json", "vapid.pem"} <= set(modes)
