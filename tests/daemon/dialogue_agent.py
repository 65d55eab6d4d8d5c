"""A small ACP agent for tests of the daemon's side of a dialogue: it writes down every line that it is told.

The prompt is its script, a word a line: `say TEXT`, `wait PATH`, `ask TOOL JSON` (for a permission; it says the option it got),
`call METHOD JSON` (it asks the daemon itself, at the socket in $HOME/../s, and says what came of it), `hang` (until
session/cancel), `deaf` (not even then), `stay` (do not leave at the end of stdin), `tail LINE` (it does that behind its answer to
the prompt), `mute` (it answers no unknown request). Started as `python dialogue_agent.py LOG`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time


class Agent:
    def __init__(self, log: str) -> None:
        self.log = open(log, "a", buffering=1)  # noqa: SIM115
        self.deaf = self.stay = self.mute = self.hear_cancel = False
        self.tail: list[str] = []
        self.asked = 0

    def hear(self) -> dict:
        line = sys.stdin.readline()
        if not line:
            self.log.write("the end\n")
            while self.stay:
                time.sleep(1)
            sys.exit(0)
        self.log.write(line)
        return json.loads(line)

    def say(self, **frame: object) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
        sys.stdout.flush()

    def run(self) -> None:
        while True:
            frame = self.hear()
            match frame.get("method"):
                case "initialize":
                    can = {"loadSession": True, "promptCapabilities": {"image": "images" in sys.argv}}
                    self.say(id=frame["id"], result={"protocolVersion": 1, "agentCapabilities": can})
                case "session/new":
                    self.say(id=frame["id"], result={"sessionId": f"native-{os.getpid()}"})
                case "session/prompt":
                    texts = [block["text"] for block in frame["params"]["prompt"] if block["type"] == "text"]
                    reason = self.play(texts[0])
                    self.say(id=frame["id"], result={"stopReason": reason})
                    tail, self.tail = self.tail, []
                    self.play("\n".join(tail))
                case _ if "id" in frame and "method" in frame and not self.mute:
                    self.say(id=frame["id"], result={})

    def play(self, script: str) -> str:
        for line in script.splitlines():
            word, _, rest = line.partition(" ")
            if word == "say":
                self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": rest})
            elif word == "wait":
                while not os.path.exists(rest):
                    time.sleep(0.005)
            elif word == "ask":
                got = self.ask(*rest.split(" ", 1))
                if got == "cancelled" and self.hear_cancel:
                    return "cancelled"
                self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": f"[{got}]"})
            elif word == "call":
                got = self.call(*rest.split(" ", 1))
                self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": got})
            elif word == "tail":
                self.tail.append(rest)
            elif word in ("deaf", "stay", "mute"):
                setattr(self, word, True)
            elif word == "hang":
                while self.hear().get("method") != "session/cancel" or self.deaf:
                    pass
                return "cancelled"
        return "end_turn"

    def ask(self, tool: str, arguments: str = "{}") -> str:
        """The option that the client chose, or `cancelled`."""
        self.asked += 1
        call = {"toolCallId": f"c{self.asked}", "name": tool, "rawInput": json.loads(arguments), "status": "pending"}
        self.update(sessionUpdate="tool_call", title=f"{tool}?", **call)
        kinds = ("allow_once", "allow_always", "reject_once")
        options = [{"optionId": kind, "name": kind.title(), "kind": kind} for kind in kinds]
        options += [{"optionId": name, "name": name, "kind": "allow_once"} for name in sys.argv[2:] if name != "images"]
        params = {"sessionId": "s", "toolCall": {"toolCallId": call["toolCallId"]}, "options": options}
        self.say(id=self.asked, method="session/request_permission", params=params)
        while (frame := self.hear()).get("id") != self.asked:
            self.hear_cancel = self.hear_cancel or frame.get("method") == "session/cancel"
        outcome = frame["result"]["outcome"]
        return outcome.get("optionId") or outcome["outcome"]

    def call(self, method: str, params: str) -> str:
        path = os.path.join(os.path.dirname(os.environ["HOME"]), "s")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            try:
                client.sendall(json.dumps({"id": 1, "method": method, "params": json.loads(params)}).encode() + b"\n")
                return client.makefile().readline().strip() or "hung up"
            except OSError:  # refused at connect: what was sent after that may take the words of the refusal along
                return "hung up"

    def update(self, **update: object) -> None:
        self.say(method="session/update", params={"sessionId": "s", "update": update})


Agent(sys.argv[1]).run()
