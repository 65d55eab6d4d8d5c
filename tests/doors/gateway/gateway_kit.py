"""The process of `clisup gateway` before a daemon, and programs that ask it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from anthropic import Anthropic
from harness import PATIENCE_S, Harness, until
from openai import OpenAI

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


class GatewayProcess:
    """A gateway with its own token and configuration, on a port of its own. The same port serves again after a kill."""

    def __init__(self, root: Path, daemon_socket: str, *, backends: list[str], **table: Any) -> None:
        self.root = root
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = int(taken.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.configuration = root / "gateway.toml"
        self.configure(backends=backends, **table)
        self.env = {
            "PATH": "/usr/bin:/bin", "HOME": str(root / "home"), "LANG": "C.UTF-8", "CLISUP_SOCKET": daemon_socket,
            "CLISUP_STATE_DIR": str(root / "client-state"), "CLISUP_CONFIG": str(self.configuration),
        }  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None
        self.token = ""
        self._clients: list[OpenAI | Anthropic] = []

    def configure(self, **table: Any) -> None:
        models = table.pop("models", {})
        lines = ["[gateway]", *(f"{name} = {json.dumps(value)}" for name, value in table.items()), "[gateway.models]"]
        lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in models.items()]
        self.configuration.write_text("\n".join(lines))

    def command(self, *flags: str, before: str = "") -> list[str]:
        program = (
            ["-c", f"{before}\nfrom clisup.cli.main import main\nraise SystemExit(main())"]
            if before
            else ["-m", "clisup"]
        )
        return [sys.executable, "-W", "error", *program, "gateway", "--no-start", *flags]

    def start(self, *, before: str = "") -> None:
        """Start the gateway. `before` is Python code for its process: limits that a test does not want to wait for."""
        self.token = subprocess.run(
            self.command("--print-token"), env=self.env, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        ).stdout.strip()
        with (self.root / "gateway.log").open("a") as log:
            self.process = subprocess.Popen(
                self.command("--port", str(self.port), before=before), env=self.env, stdout=log, stderr=log
            )
        until(self._serves, self.log)

    def _serves(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def log(self) -> str:
        return (self.root / "gateway.log").read_text()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        for client in self._clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(PATIENCE_S) == 0, self.log()

    # -- programs

    def openai(self, **options: Any) -> OpenAI:
        given = {"max_retries": 0, "timeout": PATIENCE_S, **options}
        client = OpenAI(base_url=f"{self.url}/v1", api_key=self.token, **given)
        self._clients.append(client)
        return client

    def anthropic(self, **options: Any) -> Anthropic:
        given = {"max_retries": 0, "timeout": PATIENCE_S, **options}
        client = Anthropic(base_url=self.url, api_key=self.token, **given)
        self._clients.append(client)
        return client

    def send(
        self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Send a request as it is. Return the status, the JSON or the text, and the headers."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        sent = {"Authorization": f"Bearer {self.token}"} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        data = json.dumps(body) if isinstance(body, Mapping) else body
        try:
            connection.request(method, path, data, {name: text for name, text in sent.items() if text})
            answer = connection.getresponse()
            text = answer.read().decode()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, json.loads(text) if found.get("content-type") == "application/json" else text, found
        finally:
            connection.close()

    def chat(self, prompt: str, model: str = "demo", **more: Any) -> dict[str, Any]:
        """The body of a chat request with one message."""
        return {"model": model, "messages": [{"role": "user", "content": prompt}], **more}


class Served(GatewayProcess):
    """Gateway before a daemon of a test."""

    daemon: Harness
