"""Faults: who is killed next, and when. One node at a time, so that two of three are left."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from tests.fleet_chaos.box import Box
from tests.fleet_chaos.nodes import Nodes

__all__ = ["Fault", "Killer", "plan"]

Fault = Literal["agent", "node", "daemon", "box"]
SHARES: dict[Fault, int] = {"agent": 40, "node": 15, "daemon": 25, "box": 20}
"""Of a hundred kills."""
NODE_REST_S = 12.0
"""Seconds between two kills of nodes: the one before has caught up, or two of three would be away."""


def plan(kills: int, chance: random.Random) -> list[Fault]:
    """Return the faults in order. Each kind has its share."""
    faults: list[Fault] = [kind for kind, share in SHARES.items() for _ in range(round(kills * share / 100))]
    faults += ["agent"] * (kills - len(faults))
    chance.shuffle(faults)
    return faults[:kills]


class Killer:
    """Kills by plan within `seconds`, and starts again what it killed."""

    def __init__(self, boxes: Sequence[Box], nodes: Nodes, faults: Sequence[Fault], seconds: float, seed: int) -> None:
        self._boxes, self._nodes, self._faults, self._seconds = boxes, nodes, list(faults), seconds
        self._chance = random.Random(seed)
        self.done = Counter[Fault]()
        self.node_kills = list[float]()
        """Times of the nodes' kills, on the monotonic clock."""

    async def run(self) -> None:
        """Kill until the plan is done. All boxes and nodes run then."""
        began, pause = time.monotonic(), self._seconds / max(1, len(self._faults))
        for number, fault in enumerate(self._faults):
            await asyncio.sleep(max(0.0, began + number * pause - time.monotonic()))
            await self._strike(self._possible(fault))
        await asyncio.to_thread(self._start_all)

    def _possible(self, fault: Fault) -> Fault:
        """Return the fault, or an agent's kill while the last killed node may not have caught up."""
        rested = not self.node_kills or time.monotonic() - self.node_kills[-1] > NODE_REST_S
        return fault if fault != "node" or rested else "agent"

    async def _strike(self, fault: Fault) -> None:
        box = self._chance.choice(self._boxes)
        if fault == "node":
            self.node_kills.append(time.monotonic())
            await asyncio.to_thread(self._nodes.kill, self._chance.randrange(3))
        else:
            strike = {"agent": box.kill_agent, "daemon": box.kill_daemon, "box": box.lose_power}[fault]
            await asyncio.to_thread(strike)
        self.done[fault] += 1
        await asyncio.sleep(self._chance.uniform(0.0, 0.5))
        await asyncio.to_thread(self._start_all)

    def _start_all(self) -> None:
        self._nodes.start()
        for box in self._boxes:
            box.start()
