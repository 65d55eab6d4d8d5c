"""How much comes through, and what a line costs: from a CLI's stdout over keeper, spool, decoder and journal to clients."""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.figures import Figure, figure, missing
from tests.bench.flow import Flow, copied, parse, through_daemon, through_relay, through_sdk, typed
from tests.bench.place import Place
from tests.bench.setting import Setting
from tests.bench.targets import TARGETS

__all__ = ["measure", "saturation"]

PART = "throughput"
SESSIONS, CLIENTS = (1, 10, 100, 500), (1, 4, 16)
ROUNDS = 5
MANY_ROUNDS = 7
SECONDS = 2.5
"""Of the daemon's processor time, about so much a flood is to take; a probe says how many lines that are."""
LEAST, MOST = 20_000, 1_000_000
ENOUGH = 200_000
"""Lines for those that take longer, whose cost for a line does not depend on their number."""
COMPARED = 10
"""Sessions, where the daemon is compared with others."""


def measure(setting: Setting) -> list[Figure]:
    """The comparison, 16 clients beside 1, and the grid of sessions and clients (not in the short form)."""
    lines = _lines(setting)
    figures = _compared(setting, lines)
    figures += _many_clients(setting, lines)
    return figures if setting.size == "short" else [*figures, _turn(setting), *_grid(setting, lines)]


def saturation(setting: Setting, sessions: int, lines: int) -> float:
    """Lines a second that come through, at most."""
    with setting.place() as at:
        return through_daemon(at, [at.session() for _ in range(sessions)], setting.mix, lines).rate


def _lines(setting: Setting) -> int:
    if setting.size != "full":
        return setting.of(0, 20_000, 2_000)
    with setting.place() as at:
        probe = through_daemon(at, [at.session() for _ in range(COMPARED)], setting.mix, LEAST)
    lines = int(min(max(SECONDS / probe.line_us * 1e6, LEAST), MOST))
    setting.say(f"a line costs about {probe.line_us:.1f} us of the daemon: floods of {lines} lines")
    return lines


def _compared(setting: Setting, lines: int) -> list[Figure]:
    """Ten sessions and one client, and the same fakes through the references, round by round."""
    runs: dict[str, Callable[[], Flow]] = {
        "clisup": lambda: _fresh(setting, COMPARED, 1, lines),
        "orjson": lambda: parse(setting.mix, lines),
        "typed": lambda: typed(setting.mix, lines),
    }
    scratch, programs, mix = setting.scratch, setting.programs, setting.mix
    if setting.size != "short":
        runs["relay"] = lambda: through_relay(scratch, programs, mix, lines, COMPARED)
        if (sdk := setting.sdk) is not None:
            runs["sdk"] = lambda: through_sdk(scratch, programs, sdk, mix, min(lines, ENOUGH), COMPARED)
        if (blemees := setting.blemees) is not None:
            from tests.bench.reference.blemees import through_blemees

            runs["blemees"] = lambda: through_blemees(scratch, programs, blemees, mix, min(lines, ENOUGH), COMPARED)
    flows = _interleaved(setting, runs, setting.of(ROUNDS, 2, 1))
    return [*_own(flows), *_against(setting, flows)]


def _fresh(setting: Setting, sessions: int, clients: int, lines: int) -> Flow:
    """A daemon of its own."""
    with setting.place() as at:
        return through_daemon(at, [at.session() for _ in range(sessions)], setting.mix, lines, clients)


def _interleaved(setting: Setting, runs: dict[str, Callable[[], Flow]], rounds: int) -> dict[str, list[Flow]]:
    flows: dict[str, list[Flow]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            flow = run()
            flows[name].append(flow)
            setting.say(
                f"throughput {number + 1}/{rounds} {name}: {flow.rate:,.0f} lines/s, {flow.line_us:.2f} us of CPU a line"
            )
    return flows


def _own(flows: dict[str, list[Flow]]) -> list[Figure]:
    own, parsed = flows["clisup"], [flow.line_us for flow in flows["orjson"]]
    reference = "orjson.loads of the same lines"
    keepers, events = [flow.keepers / flow.lines * 1e6 for flow in own], [flow.event_us for flow in own]
    return [
        figure(PART, "daemon CPU per line", "us", [flow.line_us for flow in own], reference=reference, against=parsed,
               target=TARGETS["CPU to orjson"]),
        figure(PART, "typed events and journal lines, without a daemon", "us", [flow.line_us for flow in flows["typed"]],
               reference=reference, against=parsed),
        figure(PART, "daemon CPU per event", "us", events),
        figure(PART, "keepers' CPU per line", "us", keepers, reference=reference, against=parsed),
    ]  # fmt: skip


def _against(setting: Setting, flows: dict[str, list[Flow]]) -> list[Figure]:
    if setting.size == "short":
        return []
    own = flows["clisup"]
    rates, costs = [flow.rate for flow in own], [flow.line_us for flow in own]
    figures = [
        figure(PART, "lines a second, 10 sessions, 1 client", "lines/s", rates, reference="a Python relay that parses nothing",
               against=[flow.rate for flow in flows["relay"]], target=TARGETS["throughput to a relay"]),
    ]  # fmt: skip
    name = "daemon CPU per line beside the SDK"
    if "sdk" in flows:
        against = [flow.line_us for flow in flows["sdk"]]
        target = TARGETS["CPU to the SDK"]
        figures.append(
            figure(PART, name, "us", costs, reference="claude-agent-sdk query()", against=against, target=target)
        )
    else:
        figures.append(missing(PART, name, "claude-agent-sdk is not installed", TARGETS["CPU to the SDK"]))
    if "blemees" in flows:
        theirs, reference = flows["blemees"], "blemees-agentd"
        against = [flow.line_us for flow in theirs]
        figures.append(
            figure(PART, "daemon CPU per line beside blemees", "us", costs, reference=reference, against=against)
        )
        against = [flow.rate for flow in theirs]
        figures.append(figure(PART, "lines a second beside blemees", "lines/s", rates, reference=reference, against=against,
                              better="more"))  # fmt: skip
    else:
        figures.append(missing(PART, "beside blemees-agentd", "not installed: BLEMEES=DIRECTORY names a checkout"))
    return figures


def _many_clients(setting: Setting, lines: int) -> list[Figure]:
    """Beside it what the kernel alone takes for as many copies, put upon what one client costs: less it cannot be."""
    newest: list[Flow] = []

    def one() -> Flow:
        newest[:] = [_fresh(setting, 1, 1, lines)]
        return newest[0]

    runs: dict[str, Callable[[], Flow]] = {
        "one client": one,
        "16 clients": lambda: _fresh(setting, 1, 16, lines),
        "16 copies": lambda: copied(setting.programs, newest[0], 16),
        "one copy": lambda: copied(setting.programs, newest[0], 1),
    }
    flows = _interleaved(setting, runs, setting.of(MANY_ROUNDS, 2, 1))
    costs = {name: [flow.line_us for flow in each] for name, each in flows.items()}
    whole = zip(costs["one client"], costs["16 copies"], costs["one copy"], strict=True)
    least = [one + many - single for one, many, single in whole]
    return [
        figure(PART, "daemon CPU per line, 1 session, 16 clients", "us", costs["16 clients"], reference="1 client",
               against=costs["one client"], target=TARGETS["16 clients"]),
        figure(PART, "1 client, and 15 bare copies of what it gets", "us", least, reference="1 client",
               against=costs["one client"]),
    ]  # fmt: skip


def _turn(setting: Setting) -> Figure:
    """What a turn costs by itself: it is in the figures of the grid, where 500 sessions share the lines."""
    turns = setting.of(100, 0, 3)
    with setting.place() as at:
        flow = through_daemon(at, [at.session() for _ in range(turns)], setting.mix, turns)
    return figure(PART, "daemon CPU per turn's end (turns of one line)", "us", [flow.line_us])


def _grid(setting: Setting, lines: int) -> list[Figure]:
    """One flood a cell. All the cells of a number of sessions are on one daemon, one after the other."""
    figures = []
    for sessions in setting.of(SESSIONS, (), (1, 2)):
        with setting.place() as at:
            ids = [at.session() for _ in range(sessions)]
            for clients in setting.of(CLIENTS, (), (2,)):
                figures += _cell(setting, at, ids, clients, lines)
    return figures


def _cell(setting: Setting, at: Place, ids: list[str], clients: int, lines: int) -> list[Figure]:
    flow = through_daemon(at, ids, setting.mix, lines, clients)
    name = (
        f"{len(ids)} {'session' if len(ids) == 1 else 'sessions'} x {clients} {'client' if clients == 1 else 'clients'}"
    )
    setting.say(f"throughput {name}: {flow.rate:,.0f} lines/s, {flow.line_us:.2f} us of CPU a line")
    return [
        figure(PART, f"{name}: lines", "lines/s", [flow.rate], better="more"),
        figure(PART, f"{name}: events", "events/s", [flow.events / flow.seconds], better="more"),
        figure(PART, f"{name}: deliveries", "events/s", [flow.deliveries / flow.seconds], better="more"),
        figure(PART, f"{name}: daemon CPU per event", "us", [flow.event_us]),
        figure(PART, f"{name}: keepers' CPU per line", "us", [flow.keepers / flow.lines * 1e6]),
    ]
