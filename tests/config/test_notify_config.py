"""Tables `[[notify]]`: what is accepted, and what is refused with its key and without a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clisup.config.keys import changes
from clisup.config.model import MAX_NOTIFY, parse_config
from clisup.errors import ConfigurationError
from clisup.host.config_file import with_credentials

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NTFY = {"url": "https://ntfy.sh/topic-of-mine"}


def parsed(*tables: dict[str, Any]) -> Any:
    return parse_config({"notify": list(tables)}).notify


def test_a_table_without_a_name_has_that_of_its_program_or_host() -> None:
    found = parsed(
        NTFY, {"command": ["/usr/bin/notify-send", "x"]}, {"url": "http://[::1]:80/"}, NTFY | {"name": "mine"}
    )
    assert [table.label for table in found] == ["ntfy.sh", "notify-send", "1--80", "mine"]
    assert "topic" not in repr(found[0]) and found[0].target == "ntfy.sh"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "exactly one of command and url"),
        (NTFY | {"command": ["a"]}, "exactly one of command and url"),
        ({"command": ["a"], "secret": SECRET}, "no headers, no secret"),
        ({"command": ["a"], "format": "slack"}, "no other format"),
        (NTFY | {"secret": SECRET, "secret_env": "S"}, "only one of secret"),
        (NTFY | {"secret": "hunter2"}, "24 to 64 bytes"),
        (NTFY | {"headers": {"X": "a\r\nY: b"}}, "one line"),
        (NTFY | {"on": []}, "at least 1"),
        (NTFY | {"on": ["everything"]}, "approval_requested"),
        ({"url": "http://ntfy.sh/x"}, "should begin with https"),
        ({"url": "http://127.0.0.1.example.org/x"}, "should begin with https"),
        ({"url": "https://me:hunter2@ntfy.sh/x"}, "without a user"),
        ({"url": "ftp://ntfy.sh/x"}, "an address such as"),
        (NTFY | {"ulr": "x"}, "the nearest known key is 'url'"),
    ],
)
def test_a_wrong_table_is_refused_and_no_secret_is_said(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parsed(table)
    assert words in str(refused.value) and refused.value.data["key"].startswith("notify")
    assert "hunter2" not in f"{refused.value}{refused.value.data}"


def test_two_tables_have_two_names_and_there_is_an_end_to_tables() -> None:
    with pytest.raises(ConfigurationError, match=r"'ntfy.sh' is there twice: set name"):
        parsed(NTFY, NTFY)
    with pytest.raises(ConfigurationError):
        parsed(*({"name": f"n{at}", **NTFY} for at in range(MAX_NOTIFY + 1)))


def test_a_change_of_a_secret_is_a_change_without_values() -> None:
    one, other = (parse_config({"notify": [NTFY | {"headers": {"A": value}}]}) for value in "xy")
    assert changes(one, one) == []
    assert [(change.key, change.effect) for change in changes(one, other)] == [("notify", "at_once")]


def test_a_secret_comes_from_a_file_a_variable_or_a_credential(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)

    def filled(credentials: dict[str, str] | None = None, env: dict[str, str] | None = None, **keys: str) -> Any:
        return with_credentials(parse_config({"notify": [NTFY | keys]}), credentials, env or {}).notify[0]

    for table in (
        filled(secret_file=str(path)),
        filled(secret_file="credential:hook", credentials={"hook": SECRET}),
        filled(secret_env="HOOK", env={"HOOK": SECRET}),
    ):
        assert table.secret.get_secret_value() == SECRET and table.signed
    assert filled(secret_env="HOOK").secret is None, "only the daemon has its variables"
    with pytest.raises(ConfigurationError, match="has no variable HOOK"):
        filled({}, secret_env="HOOK")
    with pytest.raises(ConfigurationError, match="24 to 64 bytes"):
        filled(secret_env="HOOK", env={"HOOK": "hunter2"})
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="open to others"):
        filled(secret_file=str(path))
