"""The way to a directory that the daemon trusts: each directory and each link on it is this user's or root's, and nobody else writes."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from clisup.errors import ConfigurationError, WorldError
from clisup.host.config_file import ConfigFile
from clisup.host.safe_paths import check_safe_dir, check_safe_file, make_safe_dir, problem_of, real_paths

STRANGER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def refused(path: Path | str) -> ConfigurationError:
    with pytest.raises(ConfigurationError, match="cannot keep state in") as caught:
        make_safe_dir(str(path), "keep state in")
    assert caught.value.hint and caught.value.exit_code == 78
    found = problem_of(str(path))
    assert found is not None and found.what in caught.value.message, "doctor says what the start says"
    return caught.value


def accepted(path: Path | str) -> None:
    make_safe_dir(str(path), "keep state in")
    assert os.path.isdir(path) and problem_of(str(path)) is None


def test_what_is_missing_is_made_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        accepted(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o700


def test_to_ask_makes_nothing(tmp_path: Path) -> None:
    assert problem_of(str(tmp_path / "a" / "b")) is None
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("where", ["d", "d/state"])
def test_a_directory_that_all_may_write_to_is_refused_wherever_it_is_on_the_way(tmp_path: Path, where: str) -> None:
    (tmp_path / "d" / "state").mkdir(parents=True, mode=0o700)
    (tmp_path / where).chmod(0o777)
    error = refused(tmp_path / "d" / "state")
    assert f"others may write to {tmp_path / where} (mode 777)" in error.message
    assert f"chmod go-w {tmp_path / where}" in error.hint


def test_a_sticky_directory_is_good_on_the_way_and_no_place_to_be(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    accepted(tmp_path / "shared" / "state")
    assert "others may write" in refused(tmp_path / "shared").message


@as_root
@pytest.mark.parametrize("where", ["d", "d/state"])
def test_a_directory_of_another_user_is_refused_wherever_it_is_on_the_way(tmp_path: Path, where: str) -> None:
    (tmp_path / "d" / "state").mkdir(parents=True, mode=0o700)
    os.chown(tmp_path / where, STRANGER, STRANGER)
    assert f"{tmp_path / where} belongs to uid {STRANGER}" in refused(tmp_path / "d" / "state").message
    assert f"{tmp_path / where} belongs to uid {STRANGER}" in refused(tmp_path / "d" / "state" / "new").message
    assert not (tmp_path / "d" / "state" / "new").exists()


@as_root
def test_a_name_that_another_user_took_in_a_sticky_directory_is_refused(tmp_path: Path) -> None:
    taken = tmp_path / "shared" / "state"
    taken.mkdir(parents=True)
    (tmp_path / "shared").chmod(0o1777)
    os.chown(taken, STRANGER, STRANGER)
    assert f"belongs to uid {STRANGER}" in refused(taken).message


def test_links_of_this_user_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to("./absolute/../real//")
    accepted(tmp_path / "relative" / "state")
    assert (tmp_path / "real" / "state").is_dir()
    (tmp_path / "dangling").symlink_to("real/later")
    accepted(tmp_path / "dangling" / "state")
    assert (tmp_path / "real" / "later" / "state").is_dir()


@as_root
@pytest.mark.parametrize("middle", [False, True])
def test_a_link_of_another_user_is_refused_though_it_leads_to_a_good_place(tmp_path: Path, middle: bool) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to("real")
    os.lchown(link, STRANGER, STRANGER)
    if middle:
        (tmp_path / "own").symlink_to("link")
    assert f"{link} belongs to uid {STRANGER}" in refused(tmp_path / "own" if middle else link).message


@pytest.mark.parametrize("target", ["{open}/state", "open/state", "real/../open/state"])
def test_a_link_leads_nowhere_around_the_check(tmp_path: Path, target: str) -> None:
    for name in ("open/state", "real"):
        (tmp_path / name).mkdir(parents=True, mode=0o700)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(target.format(open=tmp_path / "open"))
    assert f"others may write to {tmp_path / 'open'}" in refused(tmp_path / "link").message


@pytest.mark.parametrize("target", ["shared/x/..", "shared"])
def test_a_link_to_a_sticky_directory_is_no_place_to_be(tmp_path: Path, target: str) -> None:
    (tmp_path / "shared" / "x").mkdir(parents=True)
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "link").symlink_to(target)
    assert "others may write" in refused(tmp_path / "link").message


def test_a_ring_of_links_and_a_file_are_no_directories(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    (tmp_path / "file").touch()
    for path in ("one", "one/state", "file", "file/state"):
        with pytest.raises(WorldError, match="cannot make the directory") as caught:
            make_safe_dir(str(tmp_path / path), "listen in")
        assert caught.value.kind == "storage_failed"
        assert problem_of(str(tmp_path / path)) is None


@pytest.fixture
def ada(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """This user is "ada" of the group 4242, and so is the group called."""
    user = pwd.struct_passwd(("ada", "x", os.geteuid(), 4242, "", "/", "/bin/sh"))
    known: dict[str, object] = {"user": user, "group": grp.struct_group(("ada", "x", 4242, ["ada"])), "all": [user]}
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: known["user"])
    monkeypatch.setattr(pwd, "getpwall", lambda: known["all"])
    monkeypatch.setattr(grp, "getgrgid", lambda _gid: known["group"])
    return known


def group_writable(directory: Path) -> Path:
    directory.mkdir(mode=0o700)
    os.chown(directory, -1, 4242)
    directory.chmod(0o775)
    return directory


@as_root
def test_the_private_group_of_a_user_may_write(tmp_path: Path, ada: dict[str, object]) -> None:
    accepted(group_writable(tmp_path / "home") / "state")
    accepted(tmp_path / "home")


@as_root
@pytest.mark.parametrize(
    "change",
    [
        {"group": grp.struct_group(("staff", "x", 4242, []))},
        {"group": grp.struct_group(("ada", "x", 4242, ["ada", "eve"]))},
        {"user": pwd.struct_passwd(("ada", "x", 0, 100, "", "/", "/bin/sh"))},
        {"all": [pwd.struct_passwd(("eve", "x", STRANGER, 4242, "", "/", "/bin/sh"))]},
    ],
)
def test_a_group_with_others_in_it_may_not(tmp_path: Path, ada: dict[str, object], change: dict[str, object]) -> None:
    ada.update(change)
    assert "others may write" in refused(group_writable(tmp_path / "home") / "state").message


@as_root
def test_neither_may_a_user_whom_an_acl_names(tmp_path: Path, ada: dict[str, object]) -> None:
    home = group_writable(tmp_path / "home")
    entries = [(0x01, 7, -1), (0x02, 7, STRANGER), (0x04, 0, -1), (0x10, 7, -1), (0x20, 0, -1)]  # acl(5)
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(home, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"this file system has no ACLs: {error}")
    assert "others may write" in refused(home / "state").message


def test_a_group_that_is_not_known_may_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_id: int) -> object:
        raise KeyError(_id)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o775)
    assert "others may write" in refused(tmp_path / "home").message


def test_what_this_user_and_root_have_put_there_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/nowhere")
    check_safe_dir(str(tmp_path), "keep state in", entries=True)


@as_root
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_another_user_has_put_there_is_refused_and_left(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "accounts.json"
    {"file": path.touch, "directory": path.mkdir, "link": lambda: path.symlink_to("/etc")}[kind]()
    os.lchown(path, STRANGER, STRANGER)
    with pytest.raises(ConfigurationError, match=f"{path} in it belongs to uid {STRANGER}") as caught:
        check_safe_dir(str(tmp_path), "keep state in", entries=True)
    assert "remove" in caught.value.hint and os.path.lexists(path)
    assert problem_of(str(tmp_path)) is None, "another directory than that of the state may have it"
    found = problem_of(str(tmp_path), entries=True)
    assert found is not None and found.what in caught.value.message, "doctor says what the start says"


IN_A_NAMESPACE = """
import ctypes, os, sys
from clisup.host.safe_paths import make_safe_dir, problem_of
os.setgid(12345), os.setuid(12345)
if ctypes.CDLL(None, use_errno=True).unshare(0x10000000):
    sys.exit(77)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # the change of uid took it, and with it the right to write this map
with open("/proc/self/uid_map", "w") as file:
    file.write("12345 12345 1")
print(os.stat("/").st_uid, os.geteuid())
make_safe_dir(sys.argv[1] + "/state", "keep state in")
print(problem_of("/var"))
"""


@as_root
def test_in_a_user_namespace_the_owner_of_the_root_directory_is_trusted_as_root_is() -> None:
    """Root of the machine has the uid 65534 there, and so has every user who is not mapped."""
    with tempfile.TemporaryDirectory(dir="/tmp") as own:
        os.chown(own, 12345, 12345)
        done = subprocess.run([sys.executable, "-c", IN_A_NAMESPACE, own], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this machine lets no user make a user namespace")
    assert done.returncode == 0, done.stderr
    assert "/var belongs to uid 65534" in done.stdout, "as the place itself it has to be one's own"


# Files


def test_a_file_is_safe_where_nobody_else_can_change_it(tmp_path: Path) -> None:
    file, link = tmp_path / "config.toml", tmp_path / "link"
    check_safe_file(str(file), "read")  # not there yet
    file.write_text("")
    link.symlink_to(file)
    check_safe_file(str(file), "read")
    check_safe_file(str(link), "read")
    check_safe_file(str(file / "below"), "read")  # whoever opens it says what is wrong


@pytest.mark.parametrize("by", ["file", "link"])
def test_a_file_that_others_may_write_to_is_refused(tmp_path: Path, by: str) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("")
    link.symlink_to(file)
    file.chmod(0o666)
    with pytest.raises(ConfigurationError, match=f"cannot read {tmp_path / by}, because others may write to {file}"):
        check_safe_file(str(tmp_path / by), "read")


@as_root
@pytest.mark.parametrize("given", ["file", "d/target", "d"])
def test_a_file_of_another_user_or_below_his_directory_is_refused(tmp_path: Path, given: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "target").write_text("")
    (tmp_path / "file").symlink_to("d/target")
    os.chown(tmp_path / given, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(ConfigurationError, match=f"{tmp_path / given} belongs to uid {STRANGER}"):
        check_safe_file(str(tmp_path / "file"), "read")


@pytest.mark.fault(60)
def test_a_configuration_that_nobody_named_is_read_only_where_no_other_user_can_change_it(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[daemon]\nmax_running = 3\n")
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="others may write"):
        ConfigFile(str(path), required=False).read()
    assert ConfigFile(str(path), required=True).read().daemon.max_running == 3


def test_links_are_followed_in_the_path_and_in_the_directory_also_to_what_is_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "real" / "src").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "cwd").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "src" / "out").symlink_to(tmp_path / "outside")
    found, cwd = real_paths(["src/new.py", "src/out/new.py", "src/out/../x", "/"], str(tmp_path / "cwd"))
    assert cwd == str(tmp_path / "real")
    # `..` after a link is above where the link leads, not above the link
    assert found == [f"{cwd}/src/new.py", f"{tmp_path}/outside/new.py", f"{tmp_path}/x", "/"]


def test_a_circle_of_links_has_an_answer_too(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    found, _ = real_paths(["a/x"], str(tmp_path))
    assert found[0].startswith(str(tmp_path))
