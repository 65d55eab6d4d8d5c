"""The process of `clisup web`, and a browser without scripts: requests with a cookie, forms, and streams."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlencode

from harness import PATIENCE_S, Harness, until

from clisup.web.access.rules import Role
from clisup.web.access.tokens import TokenBook


class Pages:
    """Pages of one daemon on a port of their own. The same port serves again after a kill."""

    def __init__(self, daemon: Harness) -> None:
        self.daemon = daemon
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = int(taken.getsockname()[1])
        self.origin = f"http://127.0.0.1:{self.port}"
        self.book = TokenBook(str(daemon.root / "client-state" / "web"))
        self.process: subprocess.Popen[str] | None = None

    def start(self, *flags: str, before: str = "", env: dict[str, str] | None = None) -> None:
        """Start the pages. `before` is Python code for the process: limits that a test does not want to wait for."""
        state = str(self.daemon.root / "client-state")
        own = {**self.daemon.env, "CLISUP_SOCKET": self.daemon.socket, "CLISUP_STATE_DIR": state}
        self.start_with({**own, **(env or {})}, *flags, before=before)

    def start_with(self, env: dict[str, str], *flags: str, before: str = "") -> None:
        """Start the pages with these variables alone."""
        program = (
            ["-c", f"{before}\nfrom clisup.cli.main import main\nraise SystemExit(main())"]
            if before
            else ["-m", "clisup"]
        )
        argv = [sys.executable, "-W", "error", *program, "web", "--port", str(self.port), "--no-start", *flags]
        log = (self.daemon.root / "web.log").open("a")
        self.process = subprocess.Popen(argv, env=env, stdout=log, stderr=log, text=True)
        log.close()
        until(self._serves, lambda: (self.daemon.root / "web.log").read_text()[-2000:])

    def _serves(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (self.daemon.root / "web.log").read_text()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE_S)

    def browser(self, role: Role = "drive", name: str = "test") -> Browser:
        """A browser that has followed a login link."""
        found = Browser(self)
        status, text, _ = found.sign_in(self.book.add_link(name, role))
        assert status == 200, text
        return found


class Browser:
    """Requests as a browser sends them."""

    def __init__(self, pages: Pages) -> None:
        self.pages, self.cookie = pages, ""

    def send(
        self, method: str, path: str, body: str | None = None, **headers: str
    ) -> tuple[HTTPConnection, HTTPResponse]:
        connection = HTTPConnection("127.0.0.1", self.pages.port, timeout=PATIENCE_S)
        sent = {"Cookie": self.cookie} if self.cookie else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, sent)
        return connection, connection.getresponse()

    def whole(self, *request: Any, **headers: str) -> tuple[int, str, dict[str, str]]:
        connection, answer = self.send(*request, **headers)
        try:
            return answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
        finally:
            answer.close()
            connection.close()

    def get(self, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
        return self.whole("GET", path, **headers)

    def post(self, path: str, fields: dict[str, Any], **headers: str) -> tuple[int, str]:
        """Send a form with the token of this browser's pages."""
        page = self.get("/approvals")[1]
        found = re.search(r'name="form_token" value="(\w+)"', page)
        assert found, page
        return self.post_bare(path, {"form_token": found[1], **fields}, **headers)

    def post_bare(self, path: str, fields: dict[str, Any], **headers: str) -> tuple[int, str]:
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.pages.origin}
        return self.whole("POST", path, urlencode(fields, doseq=True), **{**kind, **headers})[:2]

    def sign_in(self, code: str, **headers: str) -> tuple[int, str, dict[str, str]]:
        """Press the button of a login link."""
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.pages.origin}
        found = self.whole("POST", "/login", urlencode({"code": code}), **{**kind, **headers})
        self.cookie = found[2].get("set-cookie", "").partition(";")[0]
        return found

    def stream(self, path: str, last: str = "") -> Stream:
        return Stream(*self.send("GET", path, **({"Last_Event_ID": last} if last else {})))


class Stream:
    """Messages of a live page. `last` is the id that a browser sends when it connects again."""

    def __init__(self, connection: HTTPConnection, answer: HTTPResponse) -> None:
        self.connection, self.answer, self.last = connection, answer, ""

    def message(self) -> str | None:
        """The data of the next message, or None at the end."""
        data: list[str] = []
        last = self.last
        while True:
            try:
                line = self.answer.readline().decode()
            except OSError:
                return None
            if not line:
                return None
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "data" or line.startswith("data:"):
                data.append(value)
            elif name == "id":
                last = value
            elif line == "\n" and data:
                self.last = last
                return "\n".join(data)

    def close(self) -> None:
        self.answer.close()
        self.connection.close()
