"""Subagents and background work of one claude process."""

from __future__ import annotations

from typing import Any

from clisup.backends.base import Background
from clisup.backends.frames import MalformedError, get_dict, get_str
from clisup.model.events import EventBase, TaskUpdate

__all__ = ["Tasks"]

_ENDED = frozenset({"completed", "failed", "stopped", "killed", "ended"})


class Tasks:
    """Tasks that the CLI has reported.

    claude does not exit while a task runs (it kills the task after 600 s). claude waits in silence and then begins a turn
    of its own.
    """

    __slots__ = ("_ids", "_kinds", "_states", "begun")

    def __init__(self, background: Background) -> None:
        self._states: dict[str, str] = {}
        self._kinds = {
            task: kind for task, kind in background.items() if kind
        }  # only the first frames of a task name its kind
        self._ids = frozenset(background)
        self.begun = False  # background work has begun in this turn

    @property
    def background(self) -> Background:
        """Tasks announced as background work and not ended."""
        return {task_id: self._kinds.get(task_id) for task_id in sorted(self._ids)}

    def started(self, frame: dict[str, Any]) -> list[EventBase]:
        return [self._update(frame, "running")]

    def progressed(self, frame: dict[str, Any]) -> list[EventBase]:
        return [self._update(frame, "running")]

    def updated(self, frame: dict[str, Any]) -> list[EventBase]:
        patch = get_dict(frame, "patch")
        state = get_str(patch, "status") or self._states.get(_task_id(frame), "running")
        return [self._update({**frame, "description": patch.get("description")}, state)]

    def notified(self, frame: dict[str, Any]) -> list[EventBase]:
        """Read the end of a task. The summary of a sub-agent is its whole report (2.1.330), else a description of the task."""
        state = get_str(frame, "status") or "ended"
        if frame.get("summary_is_report") is True:
            return [self._update(frame, state, report=get_str(frame, "summary"))]
        return [self._update({**frame, "description": frame.get("summary")}, state)]

    def changed(self, frame: dict[str, Any]) -> list[EventBase]:
        """Read the whole set of background tasks. Ambient tasks do not count: the daemon keeps no process for them."""
        listed = frame.get("tasks")
        if not isinstance(listed, list) or not all(isinstance(task, dict) for task in listed):
            raise MalformedError("tasks is no list of objects")
        tasks = {_task_id(task): task for task in listed if not task.get("ambient")}
        gone = sorted(self._ids - tasks.keys())
        self.begun = self.begun or not self._ids.issuperset(tasks)
        self._ids = frozenset(tasks)
        new = [
            self._update(task, "running") for task_id, task in tasks.items() if self._states.get(task_id) != "running"
        ]
        ended = [
            self._update({"task_id": task_id}, "ended") for task_id in gone if self._states.get(task_id) not in _ENDED
        ]
        return [*new, *ended]

    def _update(self, frame: dict[str, Any], state: str, report: str | None = None) -> TaskUpdate:
        task_id = _task_id(frame)
        self._states[task_id] = state
        if state in _ENDED:
            self._ids -= {task_id}
        kind = get_str(frame, "task_type")
        if kind:
            self._kinds[task_id] = kind
        return TaskUpdate(
            task_id=task_id,
            kind=self._kinds.get(task_id),
            state=state,
            description=get_str(frame, "description"),
            tool_use_id=get_str(frame, "tool_use_id"),
            report=report,
        )


def _task_id(frame: dict[str, Any]) -> str:
    task_id = get_str(frame, "task_id")
    if task_id is None:
        raise MalformedError("task_id is missing")
    return task_id
