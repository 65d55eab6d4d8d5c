"""Types of private state in a session's journal, hidden from clients: memos beside events, and parts of the ledger."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Required, TypedDict

from msgspec import Meta

from clisup.model.structs import JsonObject


class SpoolPlace(TypedDict):
    """Position in both spools of a run, in bytes."""

    out: int
    err: int


class SentMessage(NamedTuple):
    """Message of the daemon to a CLI's stdin: the id of the message, and the name of the file with the text."""

    id: int
    file: str


Told = Literal["end", "answer", "part"]


class TurnEnding(TypedDict, total=False):
    """Decision to end a turn or a run. `asked` repeats the reason, if the daemon asked the CLI in the CLI's protocol.

    `told` is how far the CLI had come: it had told the turn's end, or the model had ended its answer and nothing worked on, or only
    a part. `at_work` names the tools or hooks that a silent CLI waited for, and `children` the programs below it.
    """

    reason: Required[str]
    told: Told
    asked: str
    actor: JsonObject
    error: JsonObject
    failure: JsonObject
    at_work: list[str]
    children: list[str]
    limit_s: float
    limit: int
    seen: int


class ApprovalEntry(TypedDict):
    """Approval waiting for a decision. `seq` is the seq of the request, and `at` the time."""

    seq: int
    tool_name: str
    at: str


class Resolution(TypedDict):
    """Decision on an approval."""

    decision: str
    by: str
    seq: int


class EndedTurn(TypedDict):
    """Last ended turn of a session."""

    turn_id: str
    outcome: str
    error_kind: str | None
    ended_at: str


class NewestEvent(TypedDict):
    """Newest event of a session."""

    seq: int
    type: str
    ts: str


class Steer(TypedDict, total=False):
    """Prompt sent to a CLI at work. `over`: a turn has taken the prompt, or the prompt was dropped."""

    turn: Required[str]
    key: str | None
    seq: Required[int]
    over: bool


class TurnState(TypedDict, total=False):
    """Memo of a journal record: changes of the state beyond the event's own fields."""

    # the run of the turn
    run: int
    live: bool
    pid: int
    begin: SpoolPlace
    background: dict[str, str | None] | list[str]
    ending: TurnEnding
    transcript_at: int
    say: SentMessage
    heard: int
    # the session
    opened: JsonObject  # recorded for a session of an earlier version, see `Ledger`
    prompt: tuple[str, str]  # the name and the digest of an accepted prompt's file
    cost_total_usd: float
    usage_total: JsonObject
    native_lost: bool
    transcript: JsonObject
    budget: JsonObject
    settings: dict[str, str]
    dropped: list[str]
    more_tokens: int
    title: str  # set by a client
    first_words: str  # of the first prompt


Pid = Annotated[int, Meta(ge=1, lt=2**31)]


class StartRecord(TypedDict, total=False):
    """Part of a keeper's start.json that the daemon reads."""

    stage: str
    pid: Pid | None
    start_time: int | None
    keeper_pid: Pid
    env_attested: bool | None


class Intent(TypedDict, total=False):
    """Intent of a run (intent.json), written before the start. An intent holds names of variables, never values."""

    turn_id: str
    argv: list[str]
    env_names: list[str]
    cgroup: str | None
    transcript_at: Annotated[int, Meta(ge=0, le=2**53)]
    native: tuple[str | None, bool]  # the native session id, and whether the run resumes the session
    live: dict[str, str]  # the fingerprint of a live run
