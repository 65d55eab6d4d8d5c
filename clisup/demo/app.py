"""The demo CLI from its arguments to its exit code."""

from __future__ import annotations

import json
import os
import select
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from clisup.demo import VERSION
from clisup.demo.args import BadArguments, Options, parse_arguments
from clisup.demo.script import BadScript, Step, parse_script
from clisup.demo.session import Session, open_session
from clisup.demo.signals import catch_signals, hold_signals, tolerate
from clisup.demo.turn import Turn
from clisup.demo.wire import Stopped, Wire
from clisup.stream_json.frames import Frames, token_usage
from clisup.stream_json.lines import write_all
from clisup.stream_json.transcript import SessionInUse, UnknownSession, new_id

if TYPE_CHECKING:
    from clisup.demo.mcp import Servers

__all__ = ["main"]

_MODEL = "demo-1"
_TOOLS = ["Task", "Bash", "Edit", "Glob", "Grep", "Read", "TodoWrite", "WebFetch", "Write"]
_STDIN_WAIT_S = 3.0  # claude's own: a pipe that stays silent longer is taken for no prompt


def main(argv: list[str]) -> NoReturn:
    """Run one turn and exit. Python's own end of a process is skipped: it is slow, and nothing is left to flush."""
    try:
        code = _run(argv)
    except Stopped as stop:
        code = stop.exit_code
    except (BadArguments, SessionInUse) as error:
        write_all(2, f"{error}\n".encode())
        code = 1
    except SystemExit as end:
        code = int(end.code or 0)
    os._exit(code)


def _run(argv: list[str]) -> int:
    if argv[:1] == ["--play"]:
        from clisup.demo.recorded import play_as_command  # another program, in truth: it plays any CLI

        play_as_command(argv[1:])
    options = parse_arguments(argv)
    if "--version" in options.switches or "--help" in options.switches:
        return _explain(options)
    wire = Wire(options.output_format)
    catch_signals(wire)
    servers = _mcp_servers(options)
    _check_files(options)
    schema = _schema(options)
    prompt = "" if options.is_live else _read_prompt(options.prompt)
    try:
        session = _open(options)
    except UnknownSession as error:
        return _unknown_session(wire, str(error))
    if options.is_live:
        return _live(wire, options, session, servers, schema)
    return _play(wire, options, session, prompt, servers, schema)


def _schema(options: Options) -> dict[str, Any] | None:
    if "--json-schema" not in options.values:
        return None
    from clisup.demo.structured import read_schema  # few are asked for such an answer

    return read_schema(options.values["--json-schema"])


def _explain(options: Options) -> int:
    if "--version" in options.switches:
        text = f"{VERSION} (clisup demo)\n"
    else:
        from clisup.demo.directives import help_text  # beside its use: no turn prints it

        text = help_text()
    write_all(1, text.encode())
    return 0


def _open(options: Options) -> Session:
    values, fork = options.values, "--fork-session" in options.switches
    try:
        return open_session(
            os.getcwd(), new=values.get("--session-id"), resume=values.get("--resume"), fork=fork,
            persist="--no-session-persistence" not in options.switches,
        )  # fmt: skip
    except SessionInUse as error:
        raise BadArguments(f"Error: Session ID {error} is already in use.") from None


def _play(
    wire: Wire,
    options: Options,
    session: Session,
    prompt: str,
    servers: Servers | None,
    schema: dict[str, Any] | None,
) -> int:
    frames = Frames(session.id, options.values.get("--model") or session.model or _MODEL)

    def begin() -> None:
        wire.frame(_init(frames, options.permission_mode, servers))

    hold_signals(True)  # a signal that comes after the init frame is answered by the player, once it is there
    steps, mistake = _parse(prompt)
    if steps and steps[0].name == "play":
        mistake = _play_recording(session, prompt, *steps[0].args)
    begin()
    if any(step.name == "no-transcript" for step in steps):
        session.forget()
    session.add_prompt(prompt)
    turn = Turn(wire, frames, session, prompt_length=len(prompt))
    turn.permission_mode = options.permission_mode
    turn.schema = schema
    if mistake:
        from clisup.demo.failures import refuse_script  # only a mistaken script needs it

        refuse_script(turn, mistake)
        write_all(2, f"demo script, {mistake}\n".encode("utf-8", "replace"))
        return 1
    from clisup.demo.player import Player  # after the first frame: the player is most of the code
    from clisup.demo.plays import PLAYS

    player = Player(wire, turn, session, PLAYS)
    player.tools.servers = servers
    player.begin_again = begin
    return _play_until_stopped(player, steps)


def _live(
    wire: Wire, options: Options, session: Session, servers: Servers | None, schema: dict[str, Any] | None
) -> int:
    from clisup.demo.controls import control  # a process of one turn has no use for it
    from clisup.demo.live import Live

    frames = Frames(session.id, options.values.get("--model") or session.model or _MODEL)

    def begin(permission_mode: str) -> dict[str, Any]:
        return _init(frames, permission_mode, servers)

    live = Live(wire, options, session, frames, begin, control, servers)
    live.turns.turn.schema = schema
    return live.run()


def _init(frames: Frames, permission_mode: str, servers: Servers | None) -> dict[str, Any]:
    described, tools = (servers.describe(), servers.names()) if servers else ([], [])
    return frames.init(
        cwd=os.getcwd(),
        permission_mode=permission_mode,
        mcp_servers=described,
        tools=[*_TOOLS, *tools],
        version=VERSION,
    )


def _why_not_played(kind: str | None) -> str:
    """What is wrong with a recording of this kind here; empty where nothing is."""
    from clisup.demo.recorded import OWN_KINDS

    if kind is None or kind in OWN_KINDS:
        return ""
    return (
        f"line 1: @play: cannot play a recording of {kind}, because the demo speaks claude's stream-json; "
        "make a backend of that kind whose command is: python -m clisup.demo --play FILE"
    )


def _play_recording(session: Session, prompt: str, path: str, speed: float) -> str:
    """Play it to its end, which is that of the process; comes back only with what is wrong."""
    from clisup.demo.recorded import load, play

    try:
        recording = load(path)
    except BadArguments as error:
        return f"line 1: @play: {str(error).removeprefix('Error: ')}"
    if not (mistake := _why_not_played(recording.kind)):
        session.add_prompt(prompt)
        hold_signals(False)
        play(recording, session.id, speed)
    return mistake


def _parse(prompt: str) -> tuple[list[Step], str]:
    """The steps, or what is wrong with the script."""
    try:
        return parse_script(prompt), ""
    except BadScript as error:
        return [], str(error)


def _play_until_stopped(player: Any, steps: list[Step]) -> int:
    """Play. SIGINT ends the turn with a result and exit code 0; other signals only kill what runs."""
    import signal  # loaded already by clisup.demo.signals

    try:
        hold_signals(False)
        return int(player.play(steps))
    except Stopped as stop:
        tolerate(stop.signum)  # the end is under way: a second one adds nothing, another signal still counts
        interrupted = stop.signum == signal.SIGINT
        in_tool = player.tools.stop(interrupted=interrupted)
        if not interrupted:
            return stop.exit_code
        if player.turn.results == 0:
            player.turn.interrupt(in_tool=in_tool)
        return 0


def _unknown_session(wire: Wire, session_id: str) -> int:
    """What claude does for a session it does not know: one result without an init, of a session of its own."""
    message = f"No conversation found with session ID: {session_id}"
    wire.frame(Frames(new_id(), _MODEL).result(
        usage=token_usage(0, 0), subtype="error_during_execution", is_error=True, num_turns=0, duration_ms=0,
        duration_api_ms=0, total_cost_usd=0, errors=[message], result_index=0,
    ))  # fmt: skip
    write_all(2, f"{message}\n".encode())
    return 1


def _read_prompt(words: str) -> str:
    """The prompt: stdin to its end, after what stands in argv. Raises `BadArguments` where there is none."""
    text = ""
    if not sys.stdin or os.isatty(0) or not select.select([0], [], [], _STDIN_WAIT_S)[0]:
        write_all(2, b"Warning: no stdin data received in 3s, proceeding without it.\n")
    else:
        chunks = []
        while chunk := os.read(0, 1 << 20):
            chunks.append(chunk)
        text = b"".join(chunks).decode("utf-8", "replace")
    prompt = "\n".join(part for part in (words, text) if part)
    if not prompt.strip():
        raise BadArguments(
            "Error: Input must be provided either through stdin or as a prompt argument when using --print"
        )
    return prompt


def _check_files(options: Options) -> None:
    for flag in ("--append-system-prompt-file", "--system-prompt-file"):
        path = options.values.get(flag)
        if path is not None and not os.path.isfile(path):
            name = flag.removeprefix("--").replace("-", " ").replace(" file", "").capitalize()
            raise BadArguments(f"Error: {name} file not found: {path}")


def _mcp_servers(options: Options) -> Servers | None:
    """The servers that --mcp-config names, started and asked for their tools."""
    config = options.values.get("--mcp-config")
    if config is None:
        return None
    try:
        if not config.lstrip().startswith("{"):
            with open(config, "rb") as file:
                config = file.read().decode()
        entries = dict(json.loads(config)["mcpServers"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadArguments(f"Error: Invalid MCP configuration: {error}") from None
    from clisup.demo.mcp import Servers  # brings subprocess, which most runs do not need

    return Servers(entries, options)
