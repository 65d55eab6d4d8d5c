"""The demo CLI from its arguments to its exit code."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from clisup.demo import VERSION
from clisup.demo.arguments import BadArguments, CommandLine, parse_arguments
from clisup.demo.directives import DIRECTIVES, Player, fail_api, help_text
from clisup.demo.script import BadScript, ScriptStep, parse_script
from clisup.demo.stdio import Stopped, Wire, catch_signals, hold_signals, ignore_signals
from clisup.demo.turn import DemoSession, DemoTurn, open_session
from clisup.stream_json.frames import Frame, Frames, token_usage
from clisup.stream_json.lines import BadInput, write_all
from clisup.stream_json.transcript import SessionInUse, UnknownSession, new_id

if TYPE_CHECKING:
    from clisup.demo.mcp import StdioServers

__all__ = ["main"]

_MODEL = "demo-1"
_TOOLS = ["Task", "Bash", "Edit", "Glob", "Grep", "Read", "TodoWrite", "WebFetch", "Write"]
_STDIN_WAIT_S = 3.0  # claude's own limit: a pipe that is silent for longer has no prompt


def main(argv: list[str]) -> NoReturn:
    """Run the CLI and exit. Python's own end of a process is skipped: it is slow, and nothing is left to flush."""
    try:
        code = _run(argv)
    except Stopped as stop:
        code = stop.exit_code
    except BadInput as error:
        write_all(2, f"{error}\n".encode())
        code = 1
    except SystemExit as end:
        code = int(end.code or 0)
    os._exit(code)


def _run(argv: list[str]) -> int:
    if argv[:1] == ["--play"]:
        from clisup.demo.recorded import play_as_command

        play_as_command(argv[1:])
    command = parse_arguments(argv)
    if command.switches & {"--version", "--help"}:
        text = f"{VERSION} (clisup demo)\n" if "--version" in command.switches else help_text()
        write_all(1, text.encode())
        return 0
    wire = Wire(command.output_format)
    catch_signals(wire)
    servers = _mcp_servers(command)
    schema = _schema(command.values.get("--json-schema"))
    prompt = "" if command.is_live else _read_prompt(command.prompt)
    try:
        session = _session(command)
    except UnknownSession as error:
        return _unknown_session(wire, str(error))
    frames = Frames(session.id, command.values.get("--model") or session.model or _MODEL)

    def init(permission_mode: str) -> Frame:
        described, tools = (servers.describe(), servers.names()) if servers else ([], [])
        return frames.init(
            cwd=os.getcwd(), permission_mode=permission_mode, mcp_servers=described, tools=[*_TOOLS, *tools], version=VERSION
        )  # fmt: skip

    if command.is_live:
        from clisup.demo.live import LiveProcess

        live = LiveProcess(wire, command, session, frames, init)
        player = live.player
    else:
        hold_signals(True)  # a signal after the init frame has to find the player
        turn = DemoTurn(wire, frames, session, prompt_length=len(prompt))
        turn.permission_mode = command.permission_mode
        player = Player(wire, turn, session, DIRECTIVES)
        player.begin_again = lambda: wire.frame(init(command.permission_mode))
    player.turn.schema = schema
    if servers is not None:
        player.tools.start_mcp = servers.start
    return live.run() if command.is_live else _play(player, prompt)


def _session(command: CommandLine) -> DemoSession:
    values = command.values
    try:
        return open_session(
            os.getcwd(), new=values.get("--session-id"), resume=values.get("--resume"),
            fork="--fork-session" in command.switches, persist="--no-session-persistence" not in command.switches,
        )  # fmt: skip
    except SessionInUse as error:
        raise BadArguments(f"Error: Session ID {error} is already in use.") from None


def _play(player: Player, prompt: str) -> int:
    mistake, steps = "", list[ScriptStep]()
    try:
        steps = parse_script(prompt, DIRECTIVES)
    except BadScript as error:
        mistake = str(error)
    if steps and steps[0].name == "play":
        mistake = _play_recording(player.session, prompt, *steps[0].args)
    player.begin_again()
    player.session.add_prompt(prompt)
    if mistake:
        fail_api(player.turn, "invalid_request", f"API Error: 400 demo script, {mistake}")
        write_all(2, f"demo script, {mistake}\n".encode("utf-8", "replace"))
        return 1
    try:
        hold_signals(False)
        return player.play(steps)
    except Stopped as stop:
        ignore_signals(stop.signum)  # another signal still ends the process
        interrupted = stop.signum == signal.SIGINT
        in_tool = player.tools.stop(interrupted=interrupted)
        if not interrupted:
            return stop.exit_code
        if player.turn.results == 0:
            player.turn.interrupt(in_tool=in_tool)
        return 0


def _play_recording(session: DemoSession, prompt: str, path: str, speed: float) -> str:
    """Play a recording to its end, which is the end of the process. Return the mistake in a recording that cannot be played."""
    from clisup.demo.recorded import load, play

    try:
        recording = load(path)
    except BadArguments as error:
        return f"line 1: @play: {str(error).removeprefix('Error: ')}"
    if recording.kind not in (None, "claude", "demo"):
        return (
            f"line 1: @play: cannot play a recording of {recording.kind}, because the demo speaks claude's stream-json; "
            "make a backend of that kind whose command is: python -m clisup.demo --play FILE"
        )
    session.add_prompt(prompt)
    hold_signals(False)
    return play(recording, session.id, speed)


def _unknown_session(wire: Wire, session_id: str) -> int:
    """Answer as claude does: with a result of a session of its own, and without an init frame."""
    message = f"No conversation found with session ID: {session_id}"
    wire.frame(Frames(new_id(), _MODEL).result(
        usage=token_usage(0, 0), subtype="error_during_execution", is_error=True, num_turns=0, duration_ms=0,
        duration_api_ms=0, total_cost_usd=0, errors=[message], result_index=0,
    ))  # fmt: skip
    write_all(2, f"{message}\n".encode())
    return 1


def _read_prompt(words: str) -> str:
    """Return the words of the command line and the whole of stdin. Raises `BadArguments` if both are empty."""
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


def _schema(text: str | None) -> Frame | None:
    """Parse the value of --json-schema. Raises `BadArguments` as claude does (2.1.329)."""
    if text is None:
        return None
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise BadArguments(f"Error: --json-schema is not valid JSON: {error}") from None
    if not isinstance(schema, dict):
        raise BadArguments("Error: --json-schema must be a JSON object")
    return schema


def _mcp_servers(command: CommandLine) -> StdioServers | None:
    config = command.values.get("--mcp-config")
    if config is None:
        return None
    try:
        if not config.lstrip().startswith("{"):
            with open(config, "rb") as file:
                config = file.read().decode()
        entries = dict(json.loads(config)["mcpServers"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadArguments(f"Error: Invalid MCP configuration: {error}") from None
    from clisup.demo.mcp import StdioServers  # loads subprocess, which is slow

    return StdioServers(entries, command)
