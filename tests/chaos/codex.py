"""The real `codex app-server` on the stage: kinds of sessions for it, and a fake Responses API that plays their prompts.

The prompt is the script, a step a line: `@bash COMMAND`, `@hang COMMAND` (nobody waits for its end), `@ask COMMAND` (outside of
the sandbox, which asks), `@fail STATUS`, `@stall` (after a first piece of text). When all steps are done, the other lines are
the answer: `@think TEXT`, `@stream COUNT SIZE`, `@slow COUNT SECONDS`, `@first` (quotes the first prompt of the conversation),
or text. The ids of a reply come from the prompt's number and the step, so they are the same whatever else is asked meanwhile.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.cast import Cast
from tests.chaos.compare import Counts
from tests.chaos.scripts import Exit, Kind, Script
from tests.e2e.codex import fake_api as api
from tests.e2e.codex.provider import KEY_NAME, codex_binary, provider
from tests.e2e.codex.scenarios import MODEL
from tests.e2e.fake_messages_api import Recorded
from tests.e2e.scenarios import Body, Event, Pause, Reply, Stall
from tests.e2e.scenarios import Scenario as Played

__all__ = ["CodexCast", "respond"]

_ON: dict[str, Any] = {"exit": None, "code_at_close": 0}
_CALM = {"int_grace": 60.0, "term_grace": 1.0, "model_idle": 600.0}
_SAYS = (b'"method":"item/agentMessage/delta"', 1)
_RUNS = (b'"type":"commandExecution"', 3)  # the witness has begun and ended, and this one has begun
_ASKS = (b'/requestApproval"', 1)
_ASK = "@ask echo NUMBER >> ran-NUMBER"

TURNS = Kind(
    "turns",
    (
        Script("@think a thought\nSome text.\nAnd more.", **_ON, rest_s=0.5),
        Script("@stream 120 80", **_ON),
        Script("@bash exit 3\n@bash echo out\n@first", **_ON, together=True),
        Script("@fail 400", **_ON, outcome="failed", together=True),
        Script("@bash sleep 0.3; echo late\n@stream 40 200", **_ON, together=True, rest_s=0.5),
        Script("@first", **_ON),
    ),
    _CALM,
    "live",
)
ASKS = Kind(
    "asks",
    (
        Script(f"{_ASK}\nallowed", **_ON, answers=("allow",), witness=False),
        Script("@ask touch never\nnot allowed", **_ON, answers=("deny",)),
        Script(f"@ask touch never\n{_ASK}\n@ask touch never\n@stream 30 80", **_ON,
               answers=("deny", "allow", "deny"), witness=False),
        Script("@ask touch never", **_ON, outcome="interrupted", act="stop", asked=1, ready=_ASKS),
        Script(f"{_ASK}\nallowed", **_ON, answers=("allow",), witness=False, together=True, rest_s=0.5),
        Script("@ask touch never", exit=Exit(), outcome="failed", act="kill keeper", asked=1,
               ready=_ASKS),
    ),
    _CALM,
    "live",
)  # fmt: skip
BREAKS = Kind(
    "breaks",
    (
        Script("@stall", **_ON, outcome="interrupted", act="stop", ready=_SAYS),
        Script("@hang sleep 60", **_ON, outcome="interrupted", act="stop", ready=_RUNS),
        Script("@first", exit=Exit(signal=9), act="kill cli at rest", rest_s=0.3),
        Script("@stall", exit=Exit(signal=9), outcome="failed", act="kill cli", ready=_SAYS),
        Script("@stall", exit=Exit(), outcome="failed", act="kill keeper", ready=_SAYS),
        Script("@first\n@stream 30 80", **_ON),
    ),
    _CALM,
    "live",
)
ONE_SHOT = Kind(
    "one-shot",
    (
        Script("@think a thought\nSome text.\n@stream 60 80"),
        Script("@bash exit 3\n@first", together=True),
        Script("@fail 400", outcome="failed"),
        Script("@ask touch never\nnot allowed", answers=("deny",)),
        Script("@stall", outcome="interrupted", act="stop", ready=_SAYS),
        Script("@first"),
    ),
    _CALM,
)


class CodexCast(Cast):
    """One fake for all sessions: a request names its session by the directory, which codex tells the model."""

    backend = "codex"
    pattern = (TURNS, ASKS, BREAKS, TURNS, ONE_SHOT, ASKS)
    sessions = 6
    not_met = ("keeper.order.",)  # codex leaves by itself at SIGTERM, so a turn that a client kills has two right ends
    params = {"model": MODEL, "permission_mode": "workspace-write"}

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int, int]] = Counter()
        self._api = _Fake(Played("chaos", lambda body, n: self._respond(body))).__enter__()

    def prepare(self, cwd: Path) -> None:
        """codex tells of a `.codex` that it does not trust, and its sandbox leaves one behind where it is killed."""
        (cwd / ".codex").mkdir(parents=True)

    def config(self) -> str:
        """The fake's address, and no second try: a request that is asked again has been doubled."""
        words = [
            *provider(self._api.url, retries=0),
            "-c",
            "skills.bundled.enabled=false",
        ]  # all would write the same files
        return (
            f"[backends.codex]\ncommand = {json.dumps([str(codex_binary())])}\nargs = {json.dumps(words)}\n"
            f'env = {{ {KEY_NAME} = "{api.FAKE_KEY}" }}\n'
        )

    def asked(self, where: str, session_id: str, prompts: int) -> Counts:
        """Each step of each prompt came to the API once."""
        counts = Counts()
        with self._lock:
            mine = {key[1:]: times for key, times in self._requests.items() if key[0] == session_id}
        for (number, step), times in mine.items():
            counts.add("doubled", times - 1, f"{where}: step {step} of prompt {number} came to the API {times} times")
        for number in set(range(prompts)) - {number for number, _ in mine}:
            counts.add("lost", 1, f"{where}: prompt {number} never came to the API")
        return counts

    def close(self) -> None:
        """End the fake."""
        self._api.close()

    def _respond(self, body: Body) -> Reply:
        session = re.search(r"c1a05000(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", json.dumps(body["input"]))
        prompt, step = _latest(body)
        number = re.search(r"ran-(\d+)", prompt)
        assert session and number, body
        with self._lock:
            self._requests[session[0], int(number[1]), step] += 1
        return respond(body, 100 * int(number[1]) + step)


class _Fake(api.FakeResponsesAPI):
    """It keeps no requests: a long run has thousands, and each holds a whole conversation."""

    def reply_to(self, request: Recorded) -> Reply:
        main = request.path.split("?")[0].endswith("/responses")
        return self.scenario.respond(request.body, 0) if main else api.error(404, "the fake has no such path")


def _latest(body: Body) -> tuple[str, int]:
    """The last prompt of a conversation, and how many of its calls have a result."""
    prompt, done = "", 0
    for entry in body["input"]:
        if entry.get("type") == "function_call_output":
            done += 1
        elif texts := api.prompts({"input": [entry]}):
            prompt, done = texts[-1].replace("\u200b", ""), 0
    return prompt, done


def respond(body: Body, n: int) -> Reply:
    """The answer to the next step of the last prompt, with ids of `n`."""
    prompt, step = _latest(body)
    lines = [line.partition(" ") for line in prompt.splitlines()]
    steps = [(word, rest) for word, _, rest in lines if word in ("@bash", "@ask", "@hang", "@fail", "@stall")]
    if step < len(steps):
        word, rest = steps[step]
        if word == "@fail":
            return api.error(int(rest), "bad thing", code="invalid_value")
        if word == "@stall":
            return [*api.events(n, api.message("part", "ial"))[:-2], Stall()]
        more = {"sandbox_permissions": "require_escalated", "justification": "I want it"} if word == "@ask" else {}
        call = api.call("exec_command", cmd=rest, **more)
        if word == "@bash":
            return api.said(n, call)
        # Without usage: codex tells of it when the call is answered, or as it is interrupted, or never.
        return [*api.events(n, call), Event({"type": "response.completed", "response": {"id": f"resp_{n}"}})]
    items: list[api.Item] = []
    for word, space, rest in lines:
        match word:
            case "@bash" | "@ask" | "@hang":
                continue
            case "@think":
                items.append(api.reasoning(*rest.split()))
            case "@slow":  # so many pieces, one every so many seconds
                count, pause = rest.split()
                pieces = api.events(n, api.message(*(f"{k} " for k in range(int(count)))))
                return [*(each for event in pieces for each in (event, Pause(float(pause)))), api.completed(n)]
            case "@stream":
                count, size = map(int, rest.split())
                items.append(api.message(*(f"{k} ".ljust(size, "x") for k in range(count))))
            case "@first":
                items.append(api.message("You first said: ", (api.prompts(body) or [""])[0]))
            case _:
                items.append(api.message(word + space + rest))
    return api.said(n, *items)
