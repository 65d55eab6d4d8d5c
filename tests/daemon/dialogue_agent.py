"""A small ACP agent for tests of the daemon's side of a dialogue: it writes down every line that it is told.

The prompt is its script, a word a line: `say TEXT`, `wait PATH`, `permission`, `hang` (until session/cancel), `deaf` (not
even then), `stay` (do not leave at the end of stdin). Started as `python dialogue_agent.py LOG`.
"""

from __future__ import annotations

import json
import os
import sys
import time


class Agent:
    def __init__(self, log: str) -> None:
        self.log = open(log, "a", buffering=1)  # noqa: SIM115
        self.deaf = self.stay = False

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
                case _ if "id" in frame and "method" in frame:
                    self.say(id=frame["id"], result={})

    def play(self, script: str) -> str:
        for line in script.splitlines():
            word, _, rest = line.partition(" ")
            if word == "say":
                self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": rest})
            elif word == "wait":
                while not os.path.exists(rest):
                    time.sleep(0.005)
            elif word == "permission":
                self.update(sessionUpdate="tool_call", toolCallId="c1", title="Write", status="pending", rawInput={})
                params = {
                    "toolCall": {"toolCallId": "c1"},
                    "options": [{"optionId": "no", "name": "no", "kind": "reject_once"}],
                }
                self.say(id=0, method="session/request_permission", params={"sessionId": "s", **params})
                self.hear()
            elif word in ("deaf", "stay"):
                setattr(self, word, True)
            elif word == "hang":
                while self.hear().get("method") != "session/cancel" or self.deaf:
                    pass
                return "cancelled"
        return "end_turn"

    def update(self, **update: object) -> None:
        self.say(method="session/update", params={"sessionId": "s", "update": update})


Agent(sys.argv[1]).run()
