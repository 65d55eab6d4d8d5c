"""Comparison of the daemon's PATH with that of the user's shell, for CLIs that only the shell finds."""

from __future__ import annotations

import os
import shutil

from clisup.cli.options import chosen_box
from clisup.client.raw import JsonObject

__all__ = ["advise_findings", "notes_on_backends", "shell_advice"]


def shell_advice(name: str, command: str, *, searched: str | None) -> str:
    """Return what to do about a command that the shell finds and the daemon does not; "" if the shell lacks it, too.

    The shell of a box is not asked.

    `name` is the backend's name, `searched` the daemon's PATH.
    """
    found = None if chosen_box() else shutil.which(command)
    if found is None or (searched is not None and shutil.which(command, path=searched) is not None):
        return ""
    return (
        f"your shell finds {command} at {os.path.abspath(found)}, the daemon does not: restart the daemon from this shell "
        f"(clisup stop --mode detach && clisup start), run clisup install --user --now again for a service, "
        f"or set backends.{name}.command to that path"
    )


def advise_findings(findings: list[JsonObject], backends: list[JsonObject], searched: str | None) -> None:
    """Add the advice to the fix of each finding about a missing executable. `backends` are rows of `backend/list`."""
    commands = {row["name"]: row["command"] for row in backends}
    for finding in findings:
        name = finding["backend"]
        if finding["check"] == "executable" and finding["status"] != "ok" and commands.get(name):
            advice = shell_advice(name, commands[name][0], searched=searched)
            finding["fix"] = f"{advice}; else {finding['fix']}" if advice else finding["fix"]


def notes_on_backends(backends: list[JsonObject], searched: str | None) -> list[str]:
    """Return a line for each unavailable backend: the reason, and the advice; and one with the daemon's PATH."""
    notes = []
    for row in backends:
        if row.get("unavailable_reason"):
            notes.append(f"{row['name']}: {row['unavailable_reason']}")
            advice = (
                ""
                if row.get("path") or not row["command"]
                else shell_advice(row["name"], row["command"][0], searched=searched)
            )
            notes += [f"  {advice}"] if advice else []
    return [*notes, f"PATH of the daemon: {searched}"] if searched is not None else notes
