"""The folder of a fleet: what `clisup fleet init` and `member` write, and what they refuse."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clisup.errors import ConfigurationError, UsageError, WorldError
from clisup.fleet.member import FleetMember, MemberKey, joined, member_file, read_member, remove_member, write_member
from clisup.fleet.setup import certificates, server
from clisup.fleet.setup.folder import MAX_MEMBERS, add_member, found, read_plan, remove_member_of
from clisup.fleet.setup.nodes import FleetPlan, KnownMember, members_text, node_text
from clisup.fleet.setup.permissions import permissions_of


def test_a_fleet_has_nodes_certificates_and_an_admin(tmp_path: Path) -> None:
    folder = str(tmp_path / "team")
    plan = found(folder, "team", ["hub1", "hub2", "10.0.0.3"], 4222)
    assert plan.servers == ("tls://hub1:4222", "tls://hub2:4222", "tls://10.0.0.3:4222")
    admin = read_member(f"{folder}/admin.member")
    assert (admin.fleet, admin.name, admin.roles, admin.servers) == (
        "team",
        "admin",
        frozenset({"admin"}),
        plan.servers,
    )
    assert admin.ca.startswith("-----BEGIN CERTIFICATE-----")
    for host in plan.nodes:
        node = Path(folder, host)
        assert sorted(path.name for path in node.iterdir()) == [
            "ca.crt",
            "members.conf",
            "nats.conf",
            "node.crt",
            "node.key",
        ]
        said = subprocess.run(
            ["openssl", "verify", "-CAfile", node / "ca.crt", node / "node.crt"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.stdout.endswith("OK\n")
        text = subprocess.run(
            ["openssl", "x509", "-in", node / "node.crt", "-noout", "-ext", "subjectAltName"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert host in text
    assert not any(path.stat().st_mode & 0o077 for path in Path(folder).rglob("*.key"))
    assert read_plan(folder) == plan


def test_one_node_on_this_machine_needs_no_certificates(tmp_path: Path) -> None:
    plan = found(str(tmp_path / "one"), "one", ["127.0.0.1"], 4222)
    assert plan.servers == ("nats://127.0.0.1:4222",)
    assert "tls" not in (tmp_path / "one" / "127.0.0.1" / "nats.conf").read_text()
    assert not (tmp_path / "one" / "ca.key").exists()


@pytest.mark.parametrize(
    ("name", "nodes", "port", "why"),
    [
        ("Team", ["hub1"], 4222, "cannot use the name"),
        ("team", [], 4222, "needs 1, 3 or 5"),
        ("team", ["a", "b"], 4222, "needs 1, 3 or 5"),
        ("team", ["a", "a", "b"], 4222, "needs 1, 3 or 5"),
        ("team", ["../etc"], 4222, "no host name"),
        ("team", ["hub 1"], 4222, "no host name"),
        ("team", ["hub1"], 0, "cannot use the port"),
        ("team", ["hub1"], 65000, "cannot use the port"),
    ],
)
def test_a_bad_fleet_is_refused_and_leaves_nothing(
    tmp_path: Path, name: str, nodes: list[str], port: int, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        found(str(tmp_path / "team"), name, nodes, port)
    assert not (tmp_path / "team").exists()


def test_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    with pytest.raises(UsageError, match="it exists"):
        found(str(tmp_path / "team"), "team", ["127.0.0.1"], 4222)


def test_without_openssl_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorldError, match="openssl is not installed"):
        found(str(tmp_path / "team"), "team", ["hub1"], 4222)
    assert not (tmp_path / "team").exists()
    assert certificates.DAYS > 0


def test_members_come_and_go_on_all_nodes(tmp_path: Path) -> None:
    folder = str(tmp_path / "team")
    found(folder, "team", ["hub1", "hub2", "hub3"], 4222)
    add_member(folder, "dev1", ["worker"])
    plan = add_member(folder, "anna", ["operator", "observer"])
    assert sorted(plan.members) == ["admin", "anna", "dev1"]
    assert stat.S_IMODE(os.stat(f"{folder}/dev1.member").st_mode) == 0o600
    texts = {Path(folder, host, "members.conf").read_text() for host in plan.nodes}
    assert len(texts) == 1
    assert plan.members["dev1"].public in texts.pop()
    with pytest.raises(UsageError, match="has a member of this name"):
        add_member(folder, "dev1", ["worker"])
    with pytest.raises(UsageError, match="cannot use the name"):
        add_member(folder, "Dev.2", ["worker"])
    gone = plan.members["dev1"].public
    remove_member_of(folder, "dev1")
    assert gone not in Path(folder, "hub2", "members.conf").read_text()
    assert not Path(folder, "dev1.member").exists()
    with pytest.raises(UsageError, match="no such member"):
        remove_member_of(folder, "dev1")


def test_a_fleet_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(tmp_path / "team")
    plan = found(folder, "team", ["127.0.0.1"], 4222)
    many = {f"m-{number}": KnownMember("U", ("observer",)) for number in range(MAX_MEMBERS)}
    with pytest.raises(UsageError, match="are the most"):
        add_member(folder, "one-more", ["observer"], plan._replace(members=many))


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b'{"name": "t"}', b'{"name":"t","nodes":[],"port":1,"members":{"a":{"public":"U","roles":["god"]}}}'],
)
def test_another_folder_is_no_fleet(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot use .*fleet.json"):
        read_plan(str(tmp_path))
    (tmp_path / "fleet.json").write_bytes(text)
    with pytest.raises(ConfigurationError, match="it is damaged"):
        read_plan(str(tmp_path))


def test_the_texts_for_the_nodes_quote_what_they_hold() -> None:
    plan = FleetPlan("team", ("127.0.0.1",), 4222, {})
    assert 'listen: "127.0.0.1:4222"' in node_text(plan, "127.0.0.1")
    assert "sync_interval: always" in node_text(plan, "127.0.0.1")
    text = members_text({"dev1": KnownMember("UABC", ("worker",))})
    assert '"$KV.BOXES.dev1"' in text


def test_a_worker_may_not_drive_and_an_observer_may_only_look() -> None:
    worker, observer, operator = (permissions_of("m", [role]) for role in ("worker", "observer", "operator"))  # type: ignore[list-item]
    assert "clisup.rpc.*.drive.m" not in (*worker.publish, *observer.publish)
    assert "clisup.rpc.*.drive.m" in operator.publish
    assert "clisup.ev.m.>" in worker.publish
    assert "clisup.ev.m.>" not in (*operator.publish, *observer.publish)
    assert "clisup.rpc.*.observe.m" not in worker.publish, "a worker alone does not even look"
    assert not observer.answers
    assert permissions_of("a", ["admin", "worker"]).publish == (">",)


# -- the member's file


def member(**fields: Any) -> FleetMember:
    return FleetMember("team", "dev1", frozenset({"worker"}), ("tls://hub1:4222",), MemberKey("SECRET"))._replace(
        **fields
    )


def test_a_member_is_read_as_it_was_written(tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    assert joined(env) is None
    write_member(member_file(env), member(ca="PEM"))
    found_ = joined(env)
    assert found_ is not None
    assert (found_.name, found_.roles, found_.key.reveal(), found_.ca) == (
        "dev1",
        frozenset({"worker"}),
        "SECRET",
        "PEM",
    )
    remove_member(env)
    with pytest.raises(UsageError, match="has joined no fleet"):
        remove_member(env)


def test_a_key_has_no_string_form() -> None:
    assert "SECRET" not in f"{member()!r} {member()}"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Dev"},
        {"roles": []},
        {"roles": ["god"]},
        {"servers": []},
        {"servers": [1]},
        {"key": ""},
        {"key": 5},
        {"fleet": None},
    ],
)
def test_a_damaged_file_is_a_configuration_error(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "x.member"
    write_member(str(path), member())
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ConfigurationError, match="cannot use the member's file"):
        read_member(str(path))


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.member"
    write_member(str(path), member())
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="other users can read it"):
        read_member(str(path))


# -- the program


@pytest.mark.parametrize(("said", "kind"), [("nats-server: v2.9.10", "unsupported"), ("what", "spawn_failed")])
def test_a_server_that_will_not_do_is_refused(tmp_path: Path, said: str, kind: str) -> None:
    fake = tmp_path / "nats-server"
    fake.write_text(f"#!/bin/sh\necho '{said}'\n")
    fake.chmod(0o755)
    with pytest.raises(WorldError) as caught:
        server.version_of(str(fake))
    assert caught.value.kind == kind
    fake.write_text("#!/bin/sh\necho 'nats-server: v2.12.1'\n")
    assert server.version_of(str(fake)) == (2, 12, 1)
