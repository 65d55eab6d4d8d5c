"""Which variables a program's files refer to."""

from __future__ import annotations

import pytest

from clisup.ops.drift import MAX_CHECKS, NameCheck, Scan, compare, looks_secret, remember, restored


def names_in(*pieces: str | bytes, known: str = "") -> set[str]:
    scan = Scan(known.split().__contains__)
    for piece in pieces:
        scan.feed(piece if isinstance(piece, bytes) else piece.encode())
    return scan.names


@pytest.mark.parametrize(
    "text",
    [
        "process.env.MY_VAR", "process.env?.MY_VAR", 'process.env["MY_VAR"]', "a=env['MY_VAR']", "{env:e}=x;x.env.MY_VAR||1",
        'os.environ["MY_VAR"]', "os.environ.get('MY_VAR')", "env.MY_VAR",
    ],
)  # fmt: skip
def test_a_name_that_is_read_counts(text: str) -> None:
    assert names_in(text) == {"MY_VAR"}


@pytest.mark.parametrize(
    "text",
    [
        "my_env.MY_VAR",
        "$env.MY_VAR",
        "const MY_VAR=1",
        "process.env.production",
        "import.meta.env.DEVimport",
        "E.MY_VAR",
        "env.X_",
    ],
)
def test_what_only_looks_like_a_variable_does_not(text: str) -> None:
    assert names_in(text) == set()


def test_a_name_in_small_letters_counts_where_it_has_more_than_one_word() -> None:
    assert names_in("process.env.http_proxy;process.env.loc") == {"http_proxy"}


@pytest.mark.parametrize(
    "row",
    [
        b"{AWS_REGION:()=>a1,NEW_KEY:()=>b$,CLAUDE_X:()=>c}",
        b'x=["AWS_REGION", "NEW_KEY","CLAUDE_X"]',
        b"\0\0AWS_REGION\0\0NEW_KEY\0CLAUDE_X\0\0rest",
    ],
)
def test_a_name_counts_among_names_that_are_known(row: bytes) -> None:
    assert names_in(row, known="AWS_REGION CLAUDE_X") == {"AWS_REGION", "NEW_KEY", "CLAUDE_X"}
    assert names_in(row) == set()


def test_two_tables_are_two_rows() -> None:
    far = b"{AWS_REGION:()=>a,CLAUDE_X:()=>b}" + b" " * 1000 + b"{ERR_ONE:()=>a,ERR_TWO:()=>b}"
    assert names_in(far, known="AWS_REGION CLAUDE_X") == {"AWS_REGION", "CLAUDE_X"}


def test_credentials_and_addresses_stand_out() -> None:
    secret = ["NEW_API_KEY", "X_AUTH_TOKEN", "DB_PASSWORD", "A_BASE_URL", "no_grpc_proxy", "X_SOCKET"]
    assert [name for name in [*secret, "COLORTERM", "BASH_VERSION"] if looks_secret(name)] == secret


def known(name: str) -> bool:
    return name.startswith("KNOWN")


def test_new_names_are_those_that_another_version_did_not_have() -> None:
    first = compare({"KNOWN", "A"}, "1", known, [])
    assert (first.found, first.unknown, first.new, first.since) == (2, ("A",), (), None)
    old = NameCheck("1", "2026-01-01", ("KNOWN", "A"))
    second = compare({"A", "B", "KNOWN_TOO"}, "2", known, [old])
    assert (second.unknown, second.new, second.since) == (("A", "B"), ("B",), old)


def test_asking_twice_gives_the_same_answer_twice() -> None:
    checks = [NameCheck("1", "2026-01-01", ("A",))]
    for _ in range(2):
        assert compare({"A", "B"}, "2", known, checks).new == ("B",)
        checks = remember(checks, NameCheck("2", "2026-01-02", ("A", "B")))
    assert [check.version for check in checks] == ["1", "2"]


def test_only_so_many_checks_are_remembered_and_rubbish_is_left_out() -> None:
    checks: list[NameCheck] = []
    for n in range(MAX_CHECKS + 2):
        checks = remember(checks, NameCheck(str(n), "d", ()))
    assert [check.version for check in checks] == [str(n) for n in range(2, MAX_CHECKS + 2)]
    rows = [7, {"version": "1", "date": "d", "names": ["A"]}, {"version": 1, "date": "d", "names": []}]
    assert restored({"checks": rows}) == [NameCheck("1", "d", ("A",))]
    assert restored(None) == restored({"checks": 7}) == []
