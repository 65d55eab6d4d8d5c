"""A thief of a worker's key in a fleet. The attacks speak to the engine directly: a thief does not use clisup."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from tests.attack.ground import wait_until
from tests.attack.model import Attack, NotPlayed
from tests.fleet_chaos.box import Box, wait_for
from tests.fleet_chaos.nodes import SERVER, Nodes, clisup, found_fleet

from wire import Wire  # isort: skip
from zygote import Zygote  # isort: skip

__all__ = ["ATTACKS", "ground"]

HOST = "127.0.0.1"
ROLES = {"good": ("worker",), "evil": ("worker",), "ci": ("operator",)}
API = ("$JS.API", "clisup.js")
ANSWER_S = 0.7
PATIENCE_S = 40.0
SECRET = "my word is plum"
OWN = ("evil",)


class Fleet:
    """One node, the box `good`, an operator `ci`, and the key of the box `evil`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        port = 24000 + random.randrange(2000)
        self.files = found_fleet(root / "team", (HOST,), port, ROLES)
        self.nodes = Nodes(root / "team", (HOST,))
        self.zygote = Zygote()
        self.box = Box(root, "good", self.files["good"], self.zygote)
        config = self.box.home / ".config" / "clisup" / "config.toml"
        config.write_text(config.read_text().replace("[backends.demo]\n", '[backends.demo]\naccount = "shared"\n'))
        self.count = root / "count"
        self.job = self.session = ""

    def start(self) -> None:
        """Start everything, let `ci` run one job on `good`, and keep a secret there."""
        self.nodes.start()
        assert wait_until(self._prepared, PATIENCE_S * 2), "the streams are not there"
        self.box.start()
        wait_for(self.box.socket)
        with Wire(self.box.socket) as wire:
            self.session = wire.call("session/new", backend="demo", cwd="/tmp")["session_id"]
            wire.call("session/prompt", session_id=self.session, prompt=f"@text {SECRET}", wait=True)
        self.job = self.submit(f"@bash echo ran >> {self.count}")
        assert wait_until(lambda: self.status() == "done", PATIENCE_S), f"the job of ci is {self.status()}"

    def _prepared(self) -> bool:
        with suppress(AssertionError):
            clisup("fleet", "prepare", str(self.files["admin"]), "--gib", "1")
            return True
        return False

    def as_ci(self, *words: str) -> str:
        """Run a command as the operator."""
        env = {"HOME": str(self.root), "PATH": self.box.env["PATH"], "CLISUP_FLEET_MEMBER": str(self.files["ci"])}
        done = subprocess.run(
            [sys.executable, "-m", "clisup", *words], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout or done.stderr

    def submit(self, prompt: str) -> str:
        """Submit a job as the operator. Return its id."""
        said = self.as_ci("job", "submit", "--backend", "demo", "-C", "/tmp", prompt)
        assert said.strip().count("-") == 4, said
        return said.strip()

    def status(self) -> str:
        """Return what the operator sees of its job."""
        with suppress(ValueError, KeyError, IndexError):
            text = self.as_ci("job", "get", self.job, "--json") if self.job else ""
            found = json.loads(text)
            return str(found.get("status") or found["state"]["status"])
        return "unknown"

    @property
    def runs(self) -> int:
        """Return how often a shell command of a job ran."""
        return len(self.count.read_text().split()) if self.count.exists() else 0

    def close(self) -> None:
        """End everything."""
        self.box.close()
        self.nodes.close()
        self.zygote.close()


@contextmanager
def ground(chance: random.Random) -> Iterator[Fleet]:
    """A fleet in a directory of its own."""
    if not SERVER.exists():
        raise NotPlayed("nats-server is not installed")
    fleet = Fleet(Path(tempfile.mkdtemp(prefix="attack-key.", dir="/tmp")))
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.close()


# -- the thief's and the admin's connections

Play = Callable[[Fleet, Client, Client], Awaitable[str | None]]


def _played(play: Play) -> Callable[[Fleet], str | None]:
    async def both(fleet: Fleet) -> str | None:
        thief, admin = [await _connected(fleet, name) for name in ("evil", "admin")]
        try:
            return await play(fleet, thief, admin)
        finally:
            await thief.close()
            await admin.close()

    return lambda fleet: asyncio.run(both(fleet))


async def _connected(fleet: Fleet, name: str) -> Client:
    member = json.loads(fleet.files[name].read_text())

    async def quiet(_error: Exception) -> None:
        return None

    return await nats.connect(
        member["servers"], nkeys_seed_str=member["key"], inbox_prefix=f"_INBOX_{member['name']}", error_cb=quiet
    )


async def _send(client: Client, subject: str, data: bytes, headers: dict[str, str] | None = None) -> bytes:
    """Publish, with and without waiting for an answer. Return the answer, or b""."""
    with suppress(Exception):
        return (await client.request(subject, data, ANSWER_S, headers=headers)).data
    return b""


async def _stored(admin: Client, text: bytes) -> list[str]:
    """Return the subjects of stored messages with this text, as the admin sees them."""
    found = []
    js = admin.jetstream()
    for stream in await js.streams_info():
        name = stream.config.name
        assert name is not None
        for seq in range(max(1, stream.state.first_seq), stream.state.last_seq + 1):
            with suppress(Exception):
                message = await js.get_msg(name, seq)
                if text in (message.data or b"") or text in str(message.headers).encode():
                    found.append(str(message.subject))
    return found


def _foreign(subjects: list[str]) -> list[str]:
    return [subject for subject in subjects if not any(token in OWN for token in subject.split("."))]


def _request(fleet: Fleet, job: str, submitter: str, mark: str) -> bytes:
    prompt = f"@bash echo {mark} >> {fleet.count}"
    return json.dumps({"job": job, "submitter": submitter, "prompt": prompt, "backend": "demo", "cwd": "/tmp"}).encode()


# -- subjects that carry another member's name

FORGED = {
    "a job of ci": "clisup.job.ci.{new}",
    "the stored request of ci": "clisup.job.ci.{job}",
    "an event of good": "clisup.ev.good.{session}.0",
    "a beat of good": "$KV.BOXES.good",
    "a session of good": "$KV.SESSIONS.good.{session}",
    "a state of good": "clisup.state.{job}.work.good",
    "a state of ci": "clisup.state.{job}.submit.ci",
    "a hold of good": "$KV.HOLDS.shared.work.good",
    "a hold of nobody": "$KV.HOLDS.shared",
    "a state of nobody": "$KV.JOBS.{new}",
}
WAYS = ("directly", "by the engine's answer", "from a stream of its own", "by a consumer")


def forges(what: str, way: str) -> Callable[[Fleet], str | None]:
    """Write a record under a subject of another member."""

    async def play(fleet: Fleet, thief: Client, admin: Client) -> str | None:
        mark = uuid.uuid4().hex
        subject = FORGED[what].format(new=uuid.uuid4(), job=fleet.job, session=fleet.session)
        body = _request(fleet, mark, "ci", mark)
        if way == "directly":
            await _send(thief, subject, body)
        elif way == "by the engine's answer":
            await _by_reply(thief, subject, mark)
        else:
            await _by_stream(thief, subject, mark, body, consumer=way == "by a consumer")
        await asyncio.sleep(0.3)
        foreign = _foreign(await _stored(admin, mark.encode()))
        if way == "by the engine's answer" and not foreign:
            foreign = [name for name in _foreign(await _stored(admin, b"io.nats.jetstream.api")) if name == subject]
        return f"stored as {foreign[0]}" if foreign else None

    return _played(play)


async def _by_reply(thief: Client, subject: str, mark: str) -> None:
    """Let the engine publish its own answer to a subject that the thief may not publish."""
    for prefix in API:
        for method in ("INFO", "STREAM.INFO.KV_JOBS", f"STREAM.INFO.{mark}", "STREAM.MSG.GET.KV_BOXES"):
            with suppress(Exception):
                await thief.publish(f"{prefix}.{method}", mark.encode(), reply=subject)
    with suppress(Exception):
        await thief.flush()


async def _by_stream(thief: Client, subject: str, mark: str, body: bytes, *, consumer: bool) -> None:
    """Let a stream of the thief's, or a push consumer of a fleet's stream, publish under the subject."""
    for prefix in API:
        if consumer:
            config = {"deliver_subject": subject, "ack_policy": "none", "deliver_policy": "last"}
            for stream in ("KV_BOXES", "CLISUP_EV"):
                request = {"stream_name": stream, "config": config}
                for method in (
                    f"CONSUMER.CREATE.{stream}",
                    f"CONSUMER.CREATE.{stream}.{mark}",
                    f"CONSUMER.DURABLE.CREATE.{stream}.{mark}",
                ):
                    await _send(thief, f"{prefix}.{method}", json.dumps(request).encode())
        else:
            config = {
                "name": mark,
                "subjects": [f"evil.{mark}"],
                "republish": {"src": ">", "dest": subject},
                "storage": "memory",
            }
            await _send(thief, f"{prefix}.STREAM.CREATE.{mark}", json.dumps(config).encode())
            await _send(thief, f"evil.{mark}", body)


# -- the jobs of others

STATES = {
    "pending again": {"status": "pending", "submitter": "ci", "attempt": 7},
    "lost, with leave to run again": {
        "status": "lost",
        "submitter": "ci",
        "on_lost": "rerun",
        "box": "good",
        "attempt": 1,
    },
    "cancelled": {"status": "cancelled", "submitter": "ci"},
    "claimed by the thief": {"status": "claimed", "submitter": "ci", "box": "evil", "attempt": 9},
    "failed": {
        "status": "done",
        "submitter": "ci",
        "outcome": "failed",
        "box": "evil",
        "attempt": 9,
        "error": "forged",
    },
}
STATE_SUBJECTS = ("$KV.JOBS.{job}", "clisup.state.{job}.work.evil", "clisup.state.{job}.work.good", "clisup.state.{job}.submit.evil",
                  "clisup.state.{job}.submit.ci", "clisup.state.{job}")  # fmt: skip


def restates(name: str) -> Callable[[Fleet], str | None]:
    """Write another state of an ended job, wherever a thief may write."""

    async def play(fleet: Fleet, thief: Client, _admin: Client) -> str | None:
        runs = fleet.runs
        for subject in STATE_SUBJECTS:
            await _send(thief, subject.format(job=fleet.job), json.dumps(STATES[name]).encode())
        again = await asyncio.to_thread(wait_until, lambda: fleet.runs > runs, 6.0)
        seen = await asyncio.to_thread(fleet.status)
        return (
            f"the job ran again ({runs} -> {fleet.runs})" if again else (f"ci sees {seen}" if seen != "done" else None)
        )

    return _played(play)


def fakes(by_request: bool) -> Callable[[Fleet], str | None]:
    """Let `good` run a prompt of the thief's."""

    async def play(fleet: Fleet, thief: Client, _admin: Client) -> str | None:
        runs, job = fleet.runs, str(uuid.uuid4())
        for submitter in ("ci", "evil"):
            for subject in (f"clisup.job.{submitter}.{job}", f"clisup.job.evil.{fleet.job if by_request else job}"):
                await _send(thief, subject, _request(fleet, job, submitter, "forged"))
        state = {"status": "pending", "submitter": "ci"}
        for subject in STATE_SUBJECTS:
            await _send(thief, subject.format(job=job), json.dumps(state).encode())
        ran = await asyncio.to_thread(wait_until, lambda: fleet.runs > runs, 6.0)
        return "good ran a prompt of the thief" if ran else None

    return _played(play)


# -- records of others

REMOVALS: dict[str, tuple[str, dict[str, str], bytes]] = {
    "a roll-up of all": ("$KV.JOBS.{new}", {"Nats-Rollup": "all"}, b"{}"),
    "a roll-up of all states": ("clisup.state.{new}.work.evil", {"Nats-Rollup": "all"}, b"{}"),
    "a roll-up of all events": ("clisup.ev.evil.{new}.0", {"Nats-Rollup": "all"}, b"{}"),
    "a roll-up of all beats": ("$KV.BOXES.evil", {"Nats-Rollup": "all"}, b"{}"),
    "a roll-up of all holds": ("$KV.HOLDS.x.work.evil", {"Nats-Rollup": "all"}, b"{}"),
    "a purge marker": ("$KV.JOBS.{job}", {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}, b""),
    **{f"{method} of {stream}": (f"{prefix}.STREAM.{method}.{stream}", {}, b'{"seq": 1}')
       for prefix in API for method in ("PURGE", "DELETE", "MSG.DELETE")
       for stream in ("KV_JOBS", "CLISUP_JOB", "CLISUP_STATE", "CLISUP_EV", "KV_HOLDS")},
}  # fmt: skip


def removes(names: list[str]) -> Callable[[Fleet], str | None]:
    """Remove records of others."""

    async def play(fleet: Fleet, thief: Client, admin: Client) -> str | None:
        reached = []
        for name in names:
            subject, headers, data = REMOVALS[name]
            before = await _kept(admin)
            await _send(thief, subject.format(new=uuid.uuid4(), job=fleet.job), data, headers)
            lost = before - await _kept(admin)
            if lost:
                reached.append(f"{name} removed {len(lost)} subjects, {min(lost)}")
        return "; ".join(reached[:3]) or None

    return _played(play)


async def _kept(admin: Client) -> set[str]:
    """Return the subjects with messages of others. A beat replaces a beat."""
    js, found = admin.jetstream(), set()
    for stream in await js.streams_info(0):
        info = await js.stream_info(str(stream.config.name), subjects_filter=">")
        found |= set(info.state.subjects or {})
    return set(_foreign(sorted(found)))


# -- other boxes


async def _holds(fleet: Fleet, thief: Client, _admin: Client) -> str | None:
    """Hold the account of `good`, so that its turns wait."""
    now = time.time()
    hold = json.dumps({"limit": {"state": "limited", "until": now + 86400 * 20, "said_at": now}}).encode()
    keys = {"shared"} | {subject.split(".")[2] for subject in await _kept(_admin) if subject.startswith("$KV.HOLDS.")}
    for key in keys:
        for subject in (f"$KV.HOLDS.{key}", f"$KV.HOLDS.{key}.work.evil", f"$KV.HOLDS.{key}.work.good"):
            await _send(thief, subject, hold)
    await asyncio.sleep(3)
    return await asyncio.to_thread(_waits, fleet)


def _waits(fleet: Fleet) -> str | None:
    with Wire(fleet.box.socket) as wire:
        session = wire.call("session/new", backend="demo", cwd="/tmp")["session_id"]
        try:
            end = wire.call("session/prompt", session_id=session, prompt="hello", wait=True, when_limited="wait")
        except TimeoutError:
            return "a turn of good waits for the hold"
    return None if end["outcome"] == "completed" else f"a turn of good is {end['outcome']}"


LINES = b"".join(
    json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"
    for number, (method, params) in enumerate(
        [("session/list", {}), ("session/new", {"backend": "demo", "cwd": "/tmp"})]
    )
)


async def _drives(fleet: Fleet, thief: Client, _admin: Client) -> str | None:
    """Call the box `good`, under every name and access."""
    before = await asyncio.to_thread(_sessions, fleet)
    begin = {"tunnel": uuid.uuid4().hex, "begin": True, "v": 1}
    for access in ("observe", "drive", "admin"):
        for who in ("evil", "ci", "good", "admin", "*", ""):
            with suppress(Exception):
                answer = await _send(
                    thief, f"clisup.rpc.good.{access}.{who}", json.dumps(begin).encode() + b"\n" + LINES
                )
                if fleet.session.encode() in answer:
                    return f"good answered {access} as {who}"
    after = await asyncio.to_thread(_sessions, fleet)
    return f"sessions of good: {before} -> {after}" if after > before else None


def _sessions(fleet: Fleet) -> int:
    with Wire(fleet.box.socket) as wire:
        return len(wire.call("session/list")["sessions"])


async def _reads(fleet: Fleet, thief: Client, _admin: Client) -> str | None:
    """Read what `good` wrote: by subscriptions, last messages and consumers."""
    seen: list[bytes] = []

    async def take(message: Any) -> None:
        seen.append(message.data + str(message.headers or "").encode())

    for subject in (
        ">",
        "clisup.ev.>",
        "clisup.ev.good.>",
        "clisup.job.>",
        "_INBOX_good.>",
        "_INBOX_ci.>",
        "clisup.rpc.good.>",
    ):
        with suppress(Exception):
            await thief.subscribe(subject, cb=take)
    for prefix in API:
        for stream in ("CLISUP_EV", "EVENTS", "CLISUP_JOB", "JOBS", "KV_SESSIONS"):
            for seq in range(1, 12):
                seen.append(await _send(thief, f"{prefix}.STREAM.MSG.GET.{stream}", json.dumps({"seq": seq}).encode()))
                if not seen[-1]:
                    break
            await _consume(thief, prefix, stream, take)
    found = b"".join(seen)
    plain = found + b"".join(base64.b64decode(data) for data in re.findall(rb'"data":"([A-Za-z0-9+/=]+)"', found))
    await asyncio.to_thread(fleet.submit, "hello")
    return "the thief read a prompt of good" if SECRET.encode() in plain else None


async def _consume(thief: Client, prefix: str, stream: str, take: Callable[[Any], Awaitable[None]]) -> None:
    """Make a consumer without a filter, and one for the events of `good`."""
    for number, more in enumerate(({}, {"filter_subject": "clisup.ev.good.>"}, {"filter_subject": "clisup.ev.>"})):
        name = f"t{number}{uuid.uuid4().hex[:6]}"
        inbox = thief.new_inbox()
        with suppress(Exception):
            await thief.subscribe(inbox, cb=take)
        config = {"ack_policy": "none", "deliver_policy": "all", "name": name, **more}
        filtered = f".{more['filter_subject']}" if more else ""
        request = json.dumps({"stream_name": stream, "config": config}).encode()
        await _send(thief, f"{prefix}.CONSUMER.CREATE.{stream}.{name}{filtered}", request)
        with suppress(Exception):
            await thief.publish(
                f"{prefix}.CONSUMER.MSG.NEXT.{stream}.{name}", b'{"batch": 50, "no_wait": true}', reply=inbox
            )
            await thief.flush()
        await asyncio.sleep(0.2)


async def _lies(fleet: Fleet, thief: Client, admin: Client) -> str | None:
    """Write an event of the thief's own box that never happened."""
    mark = uuid.uuid4().hex
    for subject in (f"clisup.ev.evil.{uuid.uuid4()}.0", "$KV.BOXES.evil"):
        await _send(thief, subject, json.dumps({"text": mark}).encode())
    found = await _stored(admin, mark.encode())
    return f"stored as {found[0]}" if found else None


def plain(nodes: str, fleet: Fleet) -> str | None:
    """Found a fleet on an address that others reach, and look for a node or a member without TLS."""
    where = fleet.root / f"public-{uuid.uuid4().hex[:6]}"
    try:
        clisup("fleet", "init", "--name", "p", "--nodes", nodes, "--port", "4222", "--dir", str(where))
    except AssertionError:
        return None
    texts = [path.read_text() for path in where.rglob("nats.conf")]
    members = [path.read_text() for path in where.glob("*.member")]
    if any("tls {" not in text for text in texts) or any('"nats://' in text for text in members):
        return f"a node of {nodes} accepts connections without TLS"
    return None


PUBLIC = ("203.0.113.5", "0.0.0.0", "::", "hub1", "127.evil.example", "127.0.0.1,203.0.113.5", "localhost.evil.example")
FULL = [name for name in REMOVALS if name.startswith("a ")]
ATTACKS = (
    *(Attack("K1", f"{what}, {way}", lambda fleet, what=what, way=way: forges(what, way)(fleet), what == "a job of ci" and way == "directly")
      for what in FORGED for way in (WAYS if what in ("a job of ci", "an event of good", "a beat of good") else WAYS[:2])),
    *(Attack("K2", f"a job of ci: {name}", restates(name), name == "pending again") for name in STATES),
    Attack("K2", "a prompt of the thief as a new job", fakes(False)),
    Attack("K2", "a prompt of the thief for the job of ci", fakes(True)),
    Attack("K4", "a hold of twenty days", _played(_holds)),
    Attack("K5", "call good as anybody", _played(_drives), True),
    Attack("K6", "read events and prompts of good", _played(_reads), True),
    Attack("K7", "events of its own box that never happened", _played(_lies)),
    *(Attack("K8", f"a fleet on {nodes}", partial(plain, nodes), nodes == "203.0.113.5") for nodes in PUBLIC),
    Attack("K3", "purge and delete streams", removes([name for name in REMOVALS if name not in FULL])),
    Attack("K3", "roll-ups", removes(FULL), True),
)  # fmt: skip
