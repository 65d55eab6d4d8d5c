"""Where the daemon lives: flag, then variable, then file, then default, for the state directory as for the socket."""

from __future__ import annotations

from clisup.daemon.start import Flags, place_of

HOME = {"HOME": "/home/ada", "XDG_RUNTIME_DIR": "/nonexistent"}
BOTH = {**HOME, "CLISUP_STATE_DIR": "/variable", "CLISUP_SOCKET": "/variable.sock"}


def test_each_source_goes_before_the_next() -> None:
    flags = Flags(state_dir="/flag", socket="/flag.sock")
    assert place_of(flags, "/file.sock", "/file", BOTH) == ("/flag", "/flag.sock")
    assert place_of(Flags(), "/file.sock", "/file", BOTH) == ("/variable", "/variable.sock")
    assert place_of(Flags(), "/file.sock", "~/file", HOME) == ("/home/ada/file", "/file.sock")
    state = "/home/ada/.local/state/clisup"
    assert place_of(Flags(), "", "", HOME) == (state, f"{state}/clisup.sock")


def test_the_socket_lies_in_the_state_directory_that_was_chosen() -> None:
    assert place_of(Flags(state_dir="/flag"), "", "", HOME).socket == "/flag/clisup.sock"
