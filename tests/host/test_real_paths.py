"""Where paths really lead: what a rule for approvals sees behind links."""

from __future__ import annotations

from pathlib import Path

from clisup.host.safe_paths import real_paths


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
