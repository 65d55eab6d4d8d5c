"""One prompt in many directories, a few at a time, each result a line of JSON; started again, it does what is left.

    python fleet.py NAME PROMPT DIRECTORY...  [-b BACKEND] [--at-once N] [-o FILE]

NAME and the directory make the session's id and the prompt's key. So whatever is killed in between (this program, the daemon,
both), a second start with the same words asks nothing twice: it takes up the turns that went on meanwhile.
"""

import argparse
import json
import os
import sys
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import trio

from clisup.client.aio import AsyncClient, open_client
from clisup.errors import ClisupError


class Results:
    """A file with a line for each directory that is done. A line that a crash has cut counts as none."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a+b")  # noqa: SIM115  open for as long as the program runs
        self._file.seek(0)
        text = self._file.read()
        if text and not text.endswith(b"\n"):
            self._file.write(b"\n")
        self.done = {line["directory"]: line for line in map(_line, text.splitlines()) if line}

    def add(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done[line["directory"]] = line


def _line(raw: bytes) -> dict[str, Any] | None:
    try:
        return dict(json.loads(raw))
    except ValueError:
        return None


async def work(client: AsyncClient, wish: argparse.Namespace, directory: str, results: Results) -> None:
    key = f"{wish.name}:{directory}"
    line: dict[str, Any] = {"directory": directory}
    try:
        labels = {"fleet": wish.name}
        session = await client.open(wish.backend, directory, session_id=str(uuid5(NAMESPACE_URL, key)), labels=labels)
        turn = await session.prompt(wish.prompt, key=key)  # waits for the turn's end, across restarts of the daemon
        line |= {"outcome": turn.outcome, "text": turn.text, "cost_usd": turn.cost_usd, "session_id": session.id}
        if turn.error is not None:
            line["error"] = turn.error
        results.add(line)
        await session.close()
    except ClisupError as error:  # refused: no such directory, say. The others go on
        if error.kind in ("daemon_not_running", "shutting_down"):
            raise
        results.add(line | {"outcome": "refused", "error": {"kind": error.kind, "message": error.message}})
    print(f"{results.done[directory]['outcome']}: {directory}", file=sys.stderr)


async def main(wish: argparse.Namespace) -> int:
    results = Results(wish.output)
    directories: list[str] = wish.directories
    places = trio.CapacityLimiter(wish.at_once)

    async def one(client: AsyncClient, directory: str) -> None:
        async with places:
            await work(client, wish, directory, results)

    async with open_client(name="fleet") as client, trio.open_nursery() as nursery:
        for directory in directories:
            if directory not in results.done:
                nursery.start_soon(one, client, directory)
    return 0 if all(results.done[directory]["outcome"] == "completed" for directory in directories) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One prompt in many directories.")
    parser.add_argument("name", help="of this job: another name asks anew")
    parser.add_argument("prompt")
    parser.add_argument("directories", nargs="+")
    parser.add_argument("-b", "--backend", default="claude")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("-o", "--output", default="results.jsonl")
    wish = parser.parse_args()
    wish.directories = list(dict.fromkeys(map(os.path.abspath, wish.directories)))
    try:
        code = trio.run(main, wish)
    except* ClisupError as group:
        failed: BaseException = group
        while isinstance(failed, BaseExceptionGroup):
            failed = failed.exceptions[0]
        sys.exit(str(failed))
    except* KeyboardInterrupt:
        sys.exit("left: the turns go on in the daemon; start this again to take them up")
    sys.exit(code)
