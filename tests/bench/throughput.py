"""How much comes through, and what a line costs: from a CLI's stdout over keeper, spool, decoder and journal to clients."""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.figures import Figure, figure, missing
from tests.bench.flow import Flow, fanned_out, parse, through_daemon, through_relay, through_sdk, typed
from tests.bench.place import Place
from tests.bench.setting import Setting
from tests.bench.targets import TARGETS

__all__ = ["measure", "saturation"]

PART = "throughput"
SESSIONS, CLIENTS = (1, 10, 100, 500), (1, 4, 16)
ROUNDS, SLICES = 5, 12
"""Slices are short and many: a machine that others use, too, changes its speed by a factor of two from one second to the next."""
SECONDS, SLICE_S = 2.5, 1.0
"""Of the daemon's processor time, about so much a flood, or a slice of one, is to take; a probe says how many lines that are."""
LEAST, MOST = 20_000, 1_000_000
ENOUGH = 200_000
"""Lines for those that take longer, whose cost for a line does not depend on their number."""
COMPARED = 10
"""Sessions, where the daemon is compared with others."""


def measure(setting: Setting) -> list[Figure]:
    """The comparison, 16 clients beside 1, and the grid of sessions and clients (not in the short form)."""
    line_us = _probe(setting)
    lines, slice_ = _lines(setting, SECONDS, line_us), _lines(setting, SLICE_S, line_us)
    figures = _beside_parsers(setting, slice_)
    if setting.size != "short":
        figures += _beside_others(setting, lines)
    figures += _many_clients(setting, slice_)
    return figures if setting.size == "short" else [*figures, _turn(setting), *_grid(setting, lines)]


def saturation(setting: Setting, sessions: int, lines: int) -> float:
    """Lines a second that come through, at most."""
    with setting.place() as at:
        return through_daemon(at, [at.session() for _ in range(sessions)], setting.mix, lines).rate


def _probe(setting: Setting) -> float:
    """About so many us a line costs the daemon here; the smaller forms do not ask."""
    if setting.size != "full":
        return 0.0
    with setting.place() as at:
        probe = through_daemon(at, [at.session() for _ in range(COMPARED)], setting.mix, LEAST)
    setting.say(f"a line costs about {probe.line_us:.1f} us of the daemon")
    return probe.line_us


def _lines(setting: Setting, seconds: float, line_us: float) -> int:
    if setting.size != "full":
        return setting.of(0, LEAST, 2_000)
    return int(min(max(seconds / line_us * 1e6, LEAST), MOST))


def _beside_parsers(setting: Setting, lines: int) -> list[Figure]:
    """Ten sessions of one daemon and one client, and the same lines parsed right before and after each flood."""
    with setting.place() as at:
        ids = [at.session() for _ in range(COMPARED)]
        runs: dict[str, Callable[[], Flow]] = {
            "orjson before": lambda: parse(setting.mix, 1),
            "clisup": lambda: through_daemon(at, ids, setting.mix, lines),
            "orjson": lambda: parse(setting.mix, 1),
            "typed": lambda: typed(setting.mix, 1),
            "orjson after": lambda: parse(setting.mix, 1),
        }
        flows = _interleaved(setting, runs, setting.of(SLICES, 3, 1))
    own, made, reference = flows["clisup"], flows["typed"], "orjson.loads of the same lines"
    beside = _means(flows["orjson before"], flows["orjson"])
    keepers = [flow.keepers / flow.lines * 1e6 for flow in own]
    return [
        figure(PART, "daemon CPU per line", "us", [flow.line_us for flow in own], reference=reference, against=beside,
               target=TARGETS["CPU to orjson"]),
        figure(PART, "typed events and journal lines, without a daemon", "us", [flow.line_us for flow in made],
               reference=reference, against=_means(flows["orjson"], flows["orjson after"])),
        figure(PART, "daemon CPU per event", "us", [flow.event_us for flow in own]),
        figure(PART, "keepers' CPU per line", "us", keepers, reference=reference, against=beside),
    ]  # fmt: skip


def _means(before: list[Flow], after: list[Flow]) -> list[float]:
    return [(a.line_us + b.line_us) / 2 for a, b in zip(before, after, strict=True)]


def _interleaved(setting: Setting, runs: dict[str, Callable[[], Flow]], rounds: int) -> dict[str, list[Flow]]:
    flows: dict[str, list[Flow]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            flows[name].append(run())
        words = ", ".join(f"{name} {each[-1].line_us:.2f} us ({each[-1].rate:,.0f}/s)" for name, each in flows.items())
        setting.say(f"throughput {number + 1}/{rounds}, CPU a line: {words}")
    return flows


def _beside_others(setting: Setting, lines: int) -> list[Figure]:
    """The same fakes through the references."""
    scratch, programs, mix = setting.scratch, setting.programs, setting.mix
    with setting.place() as at:
        ids = [at.session() for _ in range(COMPARED)]
        runs: dict[str, Callable[[], Flow]] = {
            "clisup": lambda: setting.undisturbed(through_daemon, at, ids, mix, lines),
            "relay": lambda: setting.undisturbed(through_relay, scratch, programs, mix, lines, COMPARED),
        }
        if (sdk := setting.sdk) is not None:
            runs["sdk"] = lambda: through_sdk(scratch, programs, sdk, mix, min(lines, ENOUGH), COMPARED)
        if (blemees := setting.blemees) is not None:
            from tests.bench.reference.blemees import through_blemees

            most = min(lines, ENOUGH)
            runs["blemees"] = lambda: setting.undisturbed(
                through_blemees, scratch, programs, blemees, mix, most, COMPARED
            )
        return _against(_interleaved(setting, runs, setting.of(ROUNDS, 0, 1)))


def _against(flows: dict[str, list[Flow]]) -> list[Figure]:
    own, stolen = flows["clisup"], [flow.stolen for flow in flows["clisup"]]
    rates, costs = [flow.rate for flow in own], [flow.line_us for flow in own]
    figures = [
        figure(PART, "lines a second, 10 sessions, 1 client", "lines/s", rates, reference="a Python relay that parses nothing",
               against=[flow.rate for flow in flows["relay"]], target=TARGETS["throughput to a relay"], stolen=stolen),
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
                              target=TARGETS["throughput to blemees"], stolen=stolen))  # fmt: skip
    else:
        figures.append(missing(PART, "beside blemees-agentd", "not installed: BLEMEES=DIRECTORY names a checkout",
                               TARGETS["throughput to blemees"]))  # fmt: skip
    return figures


def _many_clients(setting: Setting, lines: int) -> list[Figure]:
    """One daemon, with and without fifteen more. Beside it what they cost whoever writes the same to as many, put upon one client."""
    programs, mix = setting.programs, setting.mix
    with setting.place() as at:
        ids = [at.session()]
        runs: dict[str, Callable[[], Flow]] = {
            "one client": lambda: through_daemon(at, ids, mix, lines),
            "16 clients": lambda: through_daemon(at, ids, mix, lines, 16),
            "one copy": lambda: fanned_out(programs, mix, lines, 1),
            "16 copies": lambda: fanned_out(programs, mix, lines, 16),
        }
        flows = _interleaved(setting, runs, setting.of(SLICES, 2, 1))
    costs = {name: [flow.line_us for flow in each] for name, each in flows.items()}
    whole = zip(costs["one client"], costs["16 copies"], costs["one copy"], strict=True)
    least = [one + many - single for one, many, single in whole]
    further = [(many - one) / 15 for one, many in zip(costs["one client"], costs["16 clients"], strict=True)]
    return [
        figure(PART, "daemon CPU per line for each further client", "us", further, target=TARGETS["a further client"]),
        figure(PART, "daemon CPU per line, 1 session, 16 clients", "us", costs["16 clients"], reference="1 client",
               against=costs["one client"]),
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
        figure(PART, f"{name}: lines", "lines/s", [flow.rate], better="more", stolen=[flow.stolen]),
        figure(PART, f"{name}: events", "events/s", [flow.events / flow.seconds], better="more"),
        figure(PART, f"{name}: deliveries", "events/s", [flow.deliveries / flow.seconds], better="more"),
        figure(PART, f"{name}: daemon CPU per event", "us", [flow.event_us]),
        figure(PART, f"{name}: keepers' CPU per line", "us", [flow.keepers / flow.lines * 1e6]),
    ]
