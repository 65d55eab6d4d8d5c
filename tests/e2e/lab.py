"""A daemon in front of a real CLI, which talks to a loopback fake of its API. Nothing leaves the machine."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from clisup.client.sync import Client
from clisup.errors import ClisupError
from tests.daemon.zygote import Forked, zygote
from tests.e2e.fake_messages_api import FAKE_KEY, FAKE_OAUTH_TOKEN, FakeMessagesAPI
from tests.e2e.scenarios import Scenario
from tests.versions import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
CLIS_ROOT = (ROOT / ".e2e").resolve().parent
"""The checkout whose CLIs run here: another one where `.e2e` is a link. A CLI names it in its words."""
START_LIMIT_S = 30.0
WAIT_LIMIT_S = 90.0
# Nothing of the CLI's own may call home, and as root it takes bypassPermissions only where it believes in a sandbox.
QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "IS_SANDBOX": "1",
}


def claude_binary() -> Path:
    """The pinned CLI that `make e2e-install` fetched."""
    return ROOT / ".e2e" / "claude" / "node_modules" / PACKAGES["claude"] / "claude"


def poll(condition: Callable[[], Any], what: str, limit: float = WAIT_LIMIT_S) -> Any:
    """Wait until `condition` gives something true, and give that."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {limit:g} s")


def marked(session: str) -> list[str]:
    """The names of the processes that carry the session's marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"CLISUP_SESSION={session}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "comm").read_text().strip())
            except OSError:
                continue
    return found


class Lab:
    """One daemon with one real backend, in a throw-away HOME; `turn` is the whole of most tests.

    A backend's own lab makes its fake API and calls `configure` before `start`; `close_fakes` ends what it has made.
    """

    backend = "claude"
    asked_by_others = False
    """Something else than the turns asked the fake, too, so the sums of `check_sums` differ."""
    daemon_env: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="clisup-e2e-", dir="/var/tmp")
        self.root = Path(self._scratch.name)
        self.home = self.root / "home"
        self.cwd = self.root / "work"
        self.state = self.root / "state"
        for directory in (self.home, self.cwd):
            directory.mkdir()
        self.daemon: Forked | None = None
        self.starts = 0

    def configure(self, *, command: Sequence[str], env: Mapping[str, str], extra: str = "") -> None:
        """Write the daemon's configuration: the backend's command, the variables set on purpose, and further TOML."""
        variables = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
        text = f"[backends.{self.backend}]\ncommand = {json.dumps(list(command))}\nenv = {{ {variables} }}\n{extra}\n"
        (self.root / "config.toml").write_text(text)

    def close_fakes(self) -> None:
        """End the fakes, before the daemon: a CLI that waits for one would hold it up."""

    @property
    def socket(self) -> str:
        return str(self.root / "s")

    def start(self) -> None:
        """Start the daemon and wait until it serves."""
        argv = ["serve", "--config", str(self.root / "config.toml"), "--socket", self.socket]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", **self.daemon_env}
        log = self.root / "daemon.log"
        self.daemon = zygote().fork([*argv, "--state-dir", str(self.state)], env, log, cwd=self.root)
        self.starts += 1
        poll(self._serves, "the daemon's start", START_LIMIT_S)

    def _serves(self) -> bool:
        try:
            self.client().close()
            return True
        except ClisupError:
            return False

    def kill(self) -> None:
        """SIGKILL for the daemon."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait()

    def restart(self) -> None:
        """Kill the daemon and start the next one, which adopts what runs."""
        self.kill()
        self.start()

    def client(self) -> Client:
        return Client.connect(self.socket, name="e2e")

    def open(self, **params: Any) -> str:
        """A new session of the real CLI."""
        with self.client() as client:
            about = {"backend": self.backend, "cwd": str(self.cwd), **params}
            return str(client.call("session/new", **about)["session_id"])

    def turn(
        self,
        prompt: str | list[dict[str, Any]] = "Say hello.",
        *,
        session: str | None = None,
        expand: bool = False,
        output_schema: dict[str, Any] | None = None,
        ask: dict[str, Any] | None = None,
        **params: Any,
    ) -> dict[str, Any]:
        """One prompt to its end: the answer of `session/prompt` with `wait`, and the session's id."""
        session = session or self.open(**params)
        asked = {**(ask or {}), **({"output_schema": output_schema} if output_schema is not None else {})}
        with self.client() as client:
            result = client.call("session/prompt", session_id=session, prompt=prompt, wait=True, expand=expand, **asked)
        return {**result, "session_id": session}

    def altered(self, turn: dict[str, Any]) -> str | None:
        """What `turn_started` says was done to the prompt."""
        (started,) = self.events(turn["session_id"], "turn_started")
        return started.get("prompt_altered")

    def prompt(self, session: str, prompt: str = "Say hello.") -> str:
        """A prompt whose end nobody waits for; gives the turn's id."""
        with self.client() as client:
            return str(client.call("session/prompt", session_id=session, prompt=prompt)["turn_id"])

    def events(self, session: str, *kinds: str) -> list[dict[str, Any]]:
        """The session's stored events, of some types or all."""
        events: list[dict[str, Any]] = []
        after = 0
        with self.client() as client:
            while True:
                page = client.call("session/events", session_id=session, after_seq=after, limit=1000)
                events += page["events"]
                after = page["next_seq"] - 1
                if page["eof"]:
                    return [event for event in events if not kinds or event["type"] in kinds]

    def command(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a `clisup` command to its end."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "CLISUP_SOCKET": self.socket}
        return subprocess.run([sys.executable, "-m", "clisup", *args], env=env, cwd=self.cwd, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=WAIT_LIMIT_S, check=False)  # fmt: skip

    def wait_for(self, session: str, kind: str, **fields: Any) -> dict[str, Any]:
        """Wait for an event of this type with these fields."""

        def found() -> dict[str, Any] | None:
            matching = (e for e in self.events(session, kind) if all(e.get(k) == v for k, v in fields.items()))
            return next(matching, None)

        return dict(poll(found, f"an event {kind} {fields}"))

    def answer(self, session: str, approval: dict[str, Any], decision: str, **more: Any) -> None:
        """Answer an `approval_requested`."""
        with self.client() as client:
            name = approval["approval_id"]
            client.call("approval/respond", session_id=session, approval_id=name, decision=decision, **more)

    def interrupt(self, session: str, **more: Any) -> None:
        """Interrupt the session's turn, and wait for its end."""
        with self.client() as client:
            assert client.call("session/interrupt", session_id=session, **more)["outcome"] == "interrupted"

    def is_whole(self, session: str) -> bool:
        """Tell whether the journal has each event once, in its order, and no line that could not be read."""
        events = self.events(session)
        numbered = [event["seq"] for event in events] == list(range(1, len(events) + 1))
        return numbered and not [event for event in events if event["type"] == "unparsed"]

    def pids(self, session: str) -> list[int]:
        """The pids of the session's CLIs, in their order."""
        return [event["pid"] for event in self.events(session, "process_started")]

    def laps(self, modes: Sequence[str], rounds: int = 1) -> dict[str, list[float]]:
        """Seconds of turns in each mode beside the model, behind a first one. The modes take turns, so a load meets all."""
        sessions = {mode: self.turn("First.", mode=mode)["session_id"] for mode in modes}
        laps: dict[str, list[float]] = {mode: [] for mode in modes}
        for n in range(rounds):
            for mode, session in sessions.items():
                begin = time.monotonic()
                self.turn(f"Turn {n}.", session=session)
                laps[mode].append(time.monotonic() - begin)
        return laps

    def prove_that_live_is_cheap(self) -> None:
        """Print what turns take beside the model. Only what is far off fails."""
        took = {mode: statistics.median(laps) for mode, laps in self.laps(("one-shot", "live")).items()}
        print(f"\na turn of {self.backend}: {', '.join(f'{mode} {s * 1000:.0f} ms' for mode, s in took.items())}")
        assert took["live"] < took["one-shot"]

    def close(self) -> None:
        """End everything; what the CLI left running would fail the next assertion of the fixture."""
        self.close_fakes()
        if self.daemon is not None and self.daemon.poll() is None:
            with self.client() as client:
                client.call("daemon/shutdown", mode="kill")
            self.daemon.wait(60)
        self._scratch.cleanup()

    def check_sums(self) -> None:
        """Assert that what all turns have told adds up to what the fake API served, where a CLI can know it: every answer was
        sent to its end, and every turn completed. The events and the daemon's metrics are asked.
        """
        served = getattr(self, "api", None) and self.api.served.so_far()
        if (
            not served
            or served["broken"]
            or self.asked_by_others
            or self.daemon is None
            or self.daemon.poll() is not None
        ):
            return
        told = [end for session in self.sessions() for end in self.events(session, "turn_completed")]
        usages = [end["usage"] for end in told]
        turns: Counter[str] = Counter()
        for labels, count in self.counted("clisup_turns_total"):
            turns[labels["outcome"]] += count
        if any(end["outcome"] != "completed" for end in told) or any(u.get("source") != "reported" for u in usages):
            return
        right = (served["input_tokens"], served["output_tokens"])
        # A daemon that was started again counts from nothing, and a deleted session has taken its events with it.
        if self.starts == 1 and set(+turns) == {"completed"}:
            tokens: Counter[str] = Counter()
            for labels, count in self.counted("clisup_tokens_total"):
                tokens[labels["kind"]] += count
            sums = (tokens["input"] + tokens["cache_creation"] + tokens["cache_read"], tokens["output"])
            assert sums == right, ("metrics", sums, served)
        if self.starts > 1 or turns.total() == len(told):
            assert tokens_of(*told) == right, ("events", tokens_of(*told), served)

    def counted(self, metric: str) -> list[tuple[dict[str, str], int]]:
        """The daemon's values of a metric, each with its labels."""
        with self.client() as client:
            lines = client.call("daemon/metrics")["text"].splitlines()
        rows = [line.rpartition(" ") for line in lines if line.startswith(metric + "{")]
        return [(dict(re.findall(r'(\w+)="(.*?)"', labels)), int(float(value))) for labels, _, value in rows]

    def sessions(self) -> list[str]:
        """The ids of all sessions, closed ones too."""
        with self.client() as client:
            pages = [client.call("session/list", state=state)["sessions"] for state in (None, "closed")]
        return [session["session_id"] for page in pages for session in page]

    def log(self) -> str:
        return (self.root / "daemon.log").read_text()


class ClaudeLab(Lab):
    """The real claude in front of a fake Messages API that plays `scenario`."""

    def __init__(
        self, scenario: str | Scenario, *, auth: str = "key", env: dict[str, str] | None = None, config: str = ""
    ) -> None:
        super().__init__()
        self.api = FakeMessagesAPI(scenario).__enter__()
        keys = {
            "key": {"ANTHROPIC_API_KEY": FAKE_KEY},
            "oauth": {"CLAUDE_CODE_OAUTH_TOKEN": FAKE_OAUTH_TOKEN},
            "none": {},
        }
        self.variables = {"ANTHROPIC_BASE_URL": self.api.url, **keys[auth], **QUIET, **(env or {})}
        self.configure(command=[str(claude_binary())], env=self.variables, extra=config)

    def close_fakes(self) -> None:
        self.api.close()


L = TypeVar("L", bound=Lab)


@contextmanager
def running(lab: L) -> Iterator[L]:
    """The lab, started; afterwards nothing of it runs and its daemon found no fault in itself."""
    try:
        lab.start()
        yield lab
        lab.check_sums()
        assert "inside the daemon" not in lab.log(), lab.log()
    finally:
        lab.close()


def tokens_of(*ends: dict[str, Any]) -> tuple[int, int]:
    """Return the input and the output tokens that these ends of turns tell together, as `Served` counts them."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    usages = [end["usage"] for end in ends]
    read = sum(usage.get(name) or 0 for usage in usages for name in names)
    return read, sum(usage.get("output_tokens") or 0 for usage in usages)


def text_of(events: list[dict[str, Any]]) -> str:
    """The text of all `message` events."""
    blocks = [block for event in events if event["type"] == "message" for block in event["blocks"]]
    return "".join(block.get("text", "") for block in blocks if block["kind"] == "text")
