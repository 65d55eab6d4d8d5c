"""Contract of an engine: each check gets a prepared engine and a name that no other check uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from clisup.errors import UsageError, WorldError
from clisup.fleet.chain import Append, ChainReader, Piece, StoredChunk, all_epochs, chunk_subject, next_step, read_chunk
from clisup.fleet.engine import STEPS_MOST, Bucket, Engine, StoredMessage
from clisup.model.envelope import Envelopes
from clisup.model.events import ContentDelta
from clisup.model.journal import EventFrames

Check = Callable[[Engine, str], Awaitable[None]]
PATIENCE_S = 60.0


async def first(count: int, engine: Engine, subject: str, after: int = 0) -> list[StoredMessage]:
    found = list[StoredMessage]()
    async with asyncio.timeout(PATIENCE_S), aclosing(engine.read(subject, after)) as messages:
        async for message in messages:
            found.append(message)
            if len(found) == count:
                break
    return found


async def an_append_behind_the_expected_message_is_stored(engine: Engine, name: str) -> None:
    subject = chunk_subject("box", name)
    one = await engine.append(subject, b"one", {"Clisup-V": "1"}, expected=0)
    assert one
    two = await engine.append(subject, b"two", expected=one)
    assert two == one + 1
    last = await engine.last(subject)
    assert last is not None
    assert (last.subject, last.position, last.data) == (subject, two, b"two")


async def an_append_behind_another_message_is_not_stored(engine: Engine, name: str) -> None:
    subject = chunk_subject("box", name)
    one = await engine.append(subject, b"one", expected=0)
    assert one
    assert await engine.append(subject, b"again", expected=0) is None
    assert await engine.append(subject, b"again", expected=one + 7) is None
    found = await engine.last(subject)
    assert found is not None
    assert found.data == b"one"


async def one_of_many_appends_at_once_is_stored(engine: Engine, name: str) -> None:
    subject = chunk_subject("box", name)
    stored = await asyncio.gather(*[engine.append(subject, b"%d" % n, expected=0) for n in range(20)])
    assert len([position for position in stored if position is not None]) == 1


async def agent(engine: Engine, name: str, held: list[Piece]) -> None:
    """Copy a session as an agent does: look before every append."""
    while True:
        try:
            last = await engine.last(all_epochs("box", name))
            known = last and StoredChunk(0, last.position, read_chunk(last.headers, last.data))
            step = next_step(known, held, 2048)
            if step is None:
                return
            assert isinstance(step, Append)
            await engine.append(chunk_subject("box", name), step.chunk.data, step.chunk.headers, expected=step.expected)
        except WorldError as error:
            assert error.kind == "fleet_away"
            await asyncio.sleep(0.05)


async def copied_once(engine: Engine, name: str, count: int, happening: Callable[[], None] = lambda: None) -> None:
    """Two agents of one box copy the same journal, and something happens halfway. A reader goes along."""
    envelopes = Envelopes("s", "2026-01-01T00:00:00Z")
    lines = [
        envelopes.frame(ContentDelta(kind="text", text="x" * 50), seq, None, "backend") for seq in range(1, count + 1)
    ]
    held: list[Piece] = [EventFrames(1, count + 1, b"".join(lines))]
    reader, found = ChainReader(), list[bytes]()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(agent(engine, name, held))
        async with aclosing(engine.read(all_epochs("box", name))) as messages:
            async for message in messages:
                [piece] = reader.read(0, read_chunk(message.headers, message.data))
                assert isinstance(piece, EventFrames)
                before, found = len(found), found + piece.lines
                if before < count // 2 <= len(found):
                    happening()
                if reader.have == count:
                    break
    assert b"".join(line + b"\n" for line in found) == b"".join(lines)


async def two_agents_of_a_box_copy_a_session_once(engine: Engine, name: str) -> None:
    await copied_once(engine, name, 200)


async def an_empty_subject_has_no_last_message(engine: Engine, name: str) -> None:
    assert await engine.last(chunk_subject("box", name)) is None


async def a_message_keeps_its_bytes_and_headers(engine: Engine, name: str) -> None:
    subject, data = chunk_subject("box", name), bytes(range(256)) * 1000 + b"\r\n\r\n"
    await engine.append(subject, data, {"Clisup-First": "1", "Clisup-Gap": "retention"}, expected=0)
    last = await engine.last(subject)
    [read] = await first(1, engine, subject)
    for found in (last, read):
        assert found is not None
        assert found.data == data
        assert (found.headers["Clisup-First"], found.headers["Clisup-Gap"]) == ("1", "retention")
        assert found.at > 0


async def the_last_message_of_all_epochs_names_the_present_one(engine: Engine, name: str) -> None:
    for epoch in (0, 1):
        await engine.append(chunk_subject("box", name, epoch), b"%d" % epoch, expected=0)
    found = await engine.last(all_epochs("box", name))
    assert found is not None
    assert found.subject == chunk_subject("box", name, 1)


async def a_reader_gets_what_is_stored_and_what_comes_later(engine: Engine, name: str) -> None:
    subject = chunk_subject("box", name)
    positions = [await engine.append(subject, b"%d" % n) for n in range(150)]
    await engine.append(chunk_subject("box", f"{name}-other"), b"not this one")
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(first(200, engine, subject))
        positions += [await engine.append(subject, b"%d" % n) for n in range(150, 200)]
    assert [message.data for message in reading.result()] == [b"%d" % n for n in range(200)]
    assert [message.position for message in reading.result()] == positions
    behind = await first(50, engine, subject, positions[149] or 0)
    assert behind[0].data == b"150"


async def a_reader_whose_place_the_stream_does_not_have_ends(engine: Engine, name: str) -> None:
    at = await engine.append(chunk_subject("box", name), b"one")
    assert at
    assert await first(1, engine, chunk_subject("box", name), at + 1_000_000) == []


async def a_key_is_created_once_and_swapped_by_its_revision(engine: Engine, name: str) -> None:
    holds = Bucket(engine, "HOLDS")
    assert await holds.get(name) is None
    one = await holds.create(name, b"pending")
    assert one
    assert await holds.create(name, b"pending") is None
    two = await holds.swap(name, one, b"claimed")
    assert two
    assert await holds.swap(name, one, b"claimed by another") is None
    found = await holds.get(name)
    assert found is not None
    assert (found.key, found.value, found.revision) == (name, b"claimed", two)
    assert (found.role, found.writer) == ("work", engine.member)


async def one_of_many_swaps_at_once_is_stored(engine: Engine, name: str) -> None:
    holds = Bucket(engine, "HOLDS")
    one = await holds.create(name, b"0")
    stored = await asyncio.gather(*[holds.swap(name, one or 0, b"%d" % n) for n in range(20)])
    assert len([revision for revision in stored if revision is not None]) == 1


async def a_job_keeps_all_steps_of_all_writers_in_one_order(engine: Engine, name: str) -> None:
    work, submit = Bucket(engine, "JOBS"), Bucket(engine, "JOBS", "submit")
    positions = [await bucket.put(name, b"%d" % n) for n, bucket in enumerate((submit, work, work, submit))]
    await work.put(f"{name}-other", b"another job")
    found = await work.entries(name)
    assert [(entry.value, entry.revision, entry.role) for entry in found] == [
        (b"0", positions[0], "submit"), (b"1", positions[1], "work"), (b"2", positions[2], "work"), (b"3", positions[3], "submit"),
    ]  # fmt: skip
    assert {entry.key for entry in found} == {name}
    assert len(await work.entries()) >= 5
    last = await work.get(name)
    assert last is not None and last == found[-1]._replace(at=last.at)
    assert last.at == pytest.approx(found[-1].at, abs=0.001), "two answers of the server round the time differently"


async def the_keys_of_one_member_are_listed_alone(engine: Engine, name: str) -> None:
    rows = Bucket(engine, "SESSIONS")
    for value in (b"old", b"new"):
        await rows.put(f"{name}.one", value)
    await rows.put(f"{name}-2.two", b"of another member")
    assert [(entry.key, entry.value) for entry in await rows.entries(member=name)] == [(f"{name}.one", b"new")]


async def a_member_writes_a_bounded_number_of_steps_of_a_job(engine: Engine, name: str) -> None:
    steps = Bucket(engine, "JOBS")
    await asyncio.gather(*[steps.put(name, b"{}") for _ in range(STEPS_MOST)])
    with pytest.raises(WorldError):
        await steps.put(name, b"{}")
    assert await Bucket(engine, "JOBS", "submit").put(name, b"{}")


async def a_watch_gives_the_present_value_and_each_new_one(engine: Engine, name: str) -> None:
    holds, seen = Bucket(engine, "HOLDS"), list[bytes]()
    for value in (b"1", b"2"):
        await holds.put(name, value)
    async with asyncio.timeout(PATIENCE_S), aclosing(holds.watch()) as entries:
        async for entry in entries:
            if entry.key == name:
                seen.append(entry.value)
                if entry.value == b"3":
                    break
                await holds.put(name, b"3")
    assert seen == [b"2", b"3"]


async def a_key_that_no_subject_can_hold_is_refused(engine: Engine, name: str) -> None:
    for key in ("", "a b", "*", ">", "a..b", "a.b.c", "a.b", "x" * 500, "a\r\nPUB x 1"):
        with pytest.raises(UsageError):
            await Bucket(engine, "JOBS").create(key, b"")


async def a_request_of_a_job_is_written_once(engine: Engine, name: str) -> None:
    subject = f"clisup.job.ci.{name}"
    assert await engine.append(subject, b"request", expected=0)
    assert await engine.append(subject, b"another", expected=0) is None
    with pytest.raises(WorldError):
        await engine.append(subject, b"another")
    found = await engine.last(subject)
    assert found is not None
    assert found.data == b"request"


async def a_call_is_answered_by_who_listens(engine: Engine, name: str) -> None:
    async def handler(subject: str, request: bytes) -> bytes:
        return subject.rpartition(".")[2].encode() + b":" + request

    async with engine.answer(f"clisup.rpc.{name}.*.*", handler):
        answers = await asyncio.gather(
            *[engine.call(f"clisup.rpc.{name}.drive.anna", b"%d" % n, PATIENCE_S) for n in range(100)]
        )
    assert answers == [b"anna:%d" % n for n in range(100)]


async def a_call_to_nobody_says_so_at_once(engine: Engine, name: str) -> None:
    assert await engine.call(f"clisup.rpc.{name}.drive.anna", b"", PATIENCE_S) is None


async def a_call_without_a_response_in_time_is_in_doubt(engine: Engine, name: str) -> None:
    async def handler(subject: str, request: bytes) -> bytes:
        await asyncio.sleep(PATIENCE_S)
        return b"late"

    async with engine.answer(f"clisup.rpc.{name}.drive.anna", handler):
        with pytest.raises(WorldError) as caught:
            await engine.call(f"clisup.rpc.{name}.drive.anna", b"", 0.05)
    assert caught.value.kind == "fleet_away"


async def a_message_over_the_limit_is_refused(engine: Engine, name: str) -> None:
    with pytest.raises(WorldError):
        await engine.append(chunk_subject("box", name), bytes(engine.max_payload + 1))
    assert await engine.append(chunk_subject("box", name), bytes(engine.max_payload - 512))


CONTRACT: list[Check] = [
    an_append_behind_the_expected_message_is_stored,
    an_append_behind_another_message_is_not_stored,
    one_of_many_appends_at_once_is_stored,
    two_agents_of_a_box_copy_a_session_once,
    an_empty_subject_has_no_last_message,
    a_message_keeps_its_bytes_and_headers,
    the_last_message_of_all_epochs_names_the_present_one,
    a_reader_gets_what_is_stored_and_what_comes_later,
    a_reader_whose_place_the_stream_does_not_have_ends,
    a_key_is_created_once_and_swapped_by_its_revision,
    one_of_many_swaps_at_once_is_stored,
    a_job_keeps_all_steps_of_all_writers_in_one_order,
    the_keys_of_one_member_are_listed_alone,
    a_member_writes_a_bounded_number_of_steps_of_a_job,
    a_watch_gives_the_present_value_and_each_new_one,
    a_key_that_no_subject_can_hold_is_refused,
    a_request_of_a_job_is_written_once,
    a_call_is_answered_by_who_listens,
    a_call_to_nobody_says_so_at_once,
    a_call_without_a_response_in_time_is_in_doubt,
    a_message_over_the_limit_is_refused,
]
