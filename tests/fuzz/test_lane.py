"""A slice of `make fuzz` in the ordinary suite, and the proof that the lane finds what is planted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from clisup.backends import base
from clisup.backends.claude import decoder as claude_decoder
from clisup.daemon.journal import recorder
from clisup.model.lines import framing
from clisup.wire import jsonrpc as wire
from tests.fuzz import run
from tests.fuzz.atoms import giants
from tests.fuzz.corpus import MAKERS
from tests.fuzz.lane import DOORS, SHARES, play, replay, run_one
from tests.fuzz.mutate import Mutator, Seed
from tests.fuzz.targets import TARGETS

SEED = 20_260


@pytest.mark.fault(25)
@pytest.mark.fault(28)
@pytest.mark.fault(29)
@pytest.mark.fault(46)
def test_hostile_inputs_break_nothing() -> None:
    played = play(SEED, 2_000)
    assert (played.inputs, list(played.findings)) == (2_000, [])


@pytest.mark.fault(22)
@pytest.mark.fault(46)
@pytest.mark.parametrize("name", giants(0))
def test_a_line_of_a_mebibyte_breaks_no_reader(name: str) -> None:
    data = giants(1)[name] + b"\n"
    assert not [found for target in run.GIANT_TARGETS if (found := run_one(target, data, salt=3))]


def test_every_target_has_a_share_and_a_maker() -> None:
    assert set(TARGETS) == {*SHARES, *DOORS} == set(MAKERS)
    assert sum(SHARES.values()) == sum(DOORS.values()) == 100


def test_no_bytes_of_a_connection_end_an_http_door() -> None:
    played = play(SEED, 200, DOORS)
    assert (played.inputs, list(played.findings)) == (200, [])


def test_the_same_seed_gives_the_same_inputs() -> None:
    one, two = (MAKERS["decoder"](random.Random(7)) for _ in range(2))
    assert [one() for _ in range(50)] == [two() for _ in range(50)]


def test_most_spoiled_lines_still_are_json_and_get_past_the_reader() -> None:
    good = json.dumps(
        {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "a"}], "n": 5}}
    ).encode()
    mutator = Mutator([Seed(good)], random.Random(1))
    mutants = [mutator.mutate(mutator.pick()) for _ in range(1000)]
    assert 500 < sum(_is_json(mutant) for mutant in mutants) < 900
    assert len(set(mutants)) > 700


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _fails_on_nan(data: bytes) -> Any:
    if b"NaN" in data:
        raise TypeError("a planted fault")
    return _decode_hot(data)


_decode_hot = claude_decoder.decode_hot
_Chunk = base.Chunk
PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    # what is wrong -> where, the name there, what stands in its place, the target that finds it
    "an exception of another kind": (claude_decoder, "decode_hot", _fails_on_nan, "decoder"),
    "a fold that forgets a type": (recorder, "FOLDED", recorder.FOLDED - {"session_init"}, "decoder"),
    "a chunk that leaves something out": (base, "Chunk", lambda told, *last: _Chunk(told[:1], *last), "decoder"),
    "a key twice is taken": (wire, "_unique", dict, "wire"),
    "NaN is taken": (wire, "_no_constant", float, "wire"),
    "an excerpt that depends on the split": (
        framing.LineFramer, "_first_bytes", lambda self: (*self._blocks, *self._fragments)[0][:512], "framer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_made_small_and_can_be_played_again(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place, attribute, wrong, target = PLANTED[name]
    with monkeypatch.context() as planted:
        planted.setattr(place, attribute, wrong)
        played = play(2, 3_000)  # a seed by which each of them is met
        finding = next(iter(played.findings.values()))
        assert finding.target == target
        assert played.exceptions + played.promises > 0
        assert len(finding.data) < 1_000
        path = finding.save(tmp_path)
        again = replay(path)
        assert again is not None and again.where == finding.where
    assert replay(path) is None


def test_the_run_prints_its_verdict_and_says_yes_or_no_by_its_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run.run(200, SEED, giant_mib=0, traced=20) == 0
    lines = capsys.readouterr().out.splitlines()
    giant = len(giants(0)) * len(run.GIANT_TARGETS)
    assert lines[-1] == f"inputs {202 + giant} exceptions 0 broken_promises 0"
    monkeypatch.setattr(run, "FOUND", tmp_path)
    monkeypatch.setattr(run, "ProcessPoolExecutor", _InProcess)
    monkeypatch.setattr(claude_decoder, "decode_hot", _fails_on_nan)
    assert run.run(3_000, SEED, giant_mib=0, traced=0) == 1
    assert "! decoder: TypeError" in (said := capsys.readouterr().out)
    assert int(said.split()[-3]) > 0 and list(tmp_path.iterdir())


class _InProcess:
    """A pool that plays in this process, where the fault is planted."""

    def __init__(self, _workers: int, **_options: Any) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._pool.shutdown()

    def submit(self, work: Callable[..., Any], *args: Any) -> Any:
        return self._pool.submit(work, *args)
