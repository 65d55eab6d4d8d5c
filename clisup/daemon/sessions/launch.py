"""What one run is started with: the adapter's launch spec, its environment, its files, and the keeper's spec."""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from clisup.backends.base import LaunchRequest, LaunchSpec
from clisup.daemon.sessions.cli_session import NativeSession
from clisup.daemon.sessions.concurrent_writers import before_run
from clisup.daemon.tools.bridge_config import servers_with_bridge
from clisup.host.failpoints import failpoint
from clisup.host.process import cgroups
from clisup.host.process.keepers import KEEPER_PROTO
from clisup.model.prompts.content import cached_parts, content_of
from clisup.policy.fingerprint import fingerprint
from clisup.store.session_dir import RunDir

if TYPE_CHECKING:
    from clisup.daemon.backends import Backend
    from clisup.daemon.sessions.session import Session

__all__ = ["Draft", "Launch", "Launcher", "drop_cgroup", "prompt_id"]

_ANY = "-"  # stands for a model where an adapter cannot do without one
WALL_SLACK_S = (
    10.0  # the keeper's own limit is for a run without a daemon: the daemon's comes first, in a follow-up too
)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a turn's CLI would be started with. `fingerprint` is there for a live run only."""

    request: LaunchRequest
    spec: LaunchSpec
    env: dict[str, str]
    markers: dict[str, str]
    fingerprint: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Launch:
    """One run, ready to be started: its intent is on disk."""

    number: int
    run_dir: RunDir
    draft: Draft
    cgroup: str | None

    @property
    def spec(self) -> LaunchSpec:
        return self.draft.spec


class Launcher:
    """Prepares the runs of one session."""

    __slots__ = ("_native", "_session")

    def __init__(self, session: Session, native: NativeSession) -> None:
        self._session = session
        self._native = native

    @property
    def _backend(self) -> Backend:
        """Another one after a reload, but never in the middle of a turn."""
        return self._session.backend

    async def prepare(self, turn_id: str, prompt: dict[str, Any], mode: str | None) -> Launch:
        """Everything up to the start; `mode` is how to name the native session where a first try was wrong.

        Raises `ClisupError` where the backend cannot be used or cannot do what was asked for, somebody else has the native
        session open, or the disk refuses.
        """
        session = self._session
        tool = await self._backend.ready()
        await before_run(session, turn_id)
        number = session.dir.next_run(session.ledger.runs)
        draft = self._draft(tool, turn_id, prompt, self._native.name(mode, number), number)
        run_dir = session.dir.run(number)
        cgroup = session.services.cgroups.make(session.id, number)
        if cgroup is not None:
            limits = self._backend.config.limits
            cgroups.limit(cgroup, memory=limits.memory, pids=limits.pids)
        intent: dict[str, Any] = {
            "turn_id": turn_id,
            "argv": list(draft.spec.argv),
            "env_names": list(draft.env),
            "cgroup": cgroup,
            "transcript_at": self._native.written(),
            "native": [draft.request.native_session_id, draft.request.resume],
        }
        if draft.fingerprint is not None:
            intent["live"] = draft.fingerprint
        failpoint("intent.before")
        with session.services.storage.watched():
            await trio.to_thread.run_sync(run_dir.create, intent, draft.spec.files)
            if session.tools is not None:
                config = {**session.dir.read_mcp(), "mcpServers": draft.request.mcp_servers}
                await trio.to_thread.run_sync(session.dir.write_bridge_config, config)
        failpoint("intent.after")
        return Launch(number, run_dir, draft, cgroup)

    async def draft(self, turn_id: str, prompt: dict[str, Any], named: tuple[str | None, bool], number: int) -> Draft:
        """How run `number` would be started for this turn, or given its prompt. Raises as `prepare` does."""
        return self._draft(await self._backend.ready(), turn_id, prompt, named, number)

    def _draft(
        self,
        tool: tuple[tuple[str, ...], str | None],
        turn_id: str,
        prompt: dict[str, Any],
        named: tuple[str | None, bool],
        number: int,
    ) -> Draft:
        session, backend = self._session, self._backend
        argv, version = tool
        request = self._request(argv, prompt, named, session.dir.run(number))
        request = dataclasses.replace(request, prompt_id=prompt_id(session.id, turn_id, number))
        spec = backend.adapter.launch(request)
        markers = {"CLISUP_SESSION": session.id, "CLISUP_RUN": str(number)}
        env, _ = backend.environment(
            request_env=session.gate.brought, sets=spec.env, closed=spec.closed_env, markers=markers
        )
        marked = None
        if request.live:
            bare = dataclasses.replace(
                request, native_session_id=None, resume=False, permission_mode=None, output_schema=None,
                caller_tools=(), tool_results=(), sampling={}, prompt="-", content=(),
                model=_ANY if backend.adapter.capabilities.asked_by_prompt else None,
            )  # fmt: skip
            marked = fingerprint(
                command=argv,
                version=version,
                arguments=backend.adapter.launch(bare).argv[len(argv) :],
                model=request.model,
                permission_mode=request.permission_mode,
                system_prompt=request.system_prompt,
                mcp=repr(request.mcp_servers),
                environment={name: value for name, value in env.items() if name not in markers},
                limits=(
                    backend.config.limits.model_dump(),
                    backend.config.orphans,
                    session.services.config.daemon.lease_s,
                ),
                output_schema=None if backend.adapter.capabilities.asked_by_prompt else request.output_schema,
            )
        return Draft(request, spec, env, markers, marked)

    async def line(self, prompt: dict[str, Any], prompt_id: str, number: int) -> str:
        """What a prompt is on the stdin of the live run `number`. Raises `ClisupError` where the backend refuses it."""
        argv, _ = await self._backend.ready()
        request = self._request(argv, prompt, (self._session.native_id, True), self._session.dir.run(number))
        return self._backend.adapter.launch(dataclasses.replace(request, prompt_id=prompt_id)).stdin

    async def again(self, run_dir: RunDir, prompt: dict[str, Any] | None) -> LaunchRequest:
        """The request that a run was launched with, by a daemon before this one: a decoder's replies depend on it."""
        intent = await self._session.services.storage.surely(run_dir.intent)
        native, resume = intent.get("native") or self._native.name(None, 1)
        request = self._request(tuple(intent.get("argv", ())), prompt or {"text": "-"}, (native, bool(resume)), run_dir)
        return dataclasses.replace(request, live="live" in intent)

    def _request(
        self, argv: tuple[str, ...], prompt: dict[str, Any], named: tuple[str | None, bool], run_dir: RunDir
    ) -> LaunchRequest:
        session, spec = self._session, self._session.spec
        servers, file = self._mcp()
        return LaunchRequest(
            run=run_dir.number,
            live=session.live_mode,
            command=argv,
            prompt=str(prompt["text"]),
            native_session_id=named[0],
            resume=named[1],
            cwd=spec.cwd,
            model=session.setting("model") or self._backend.config.model or None,
            permission_mode=session.setting("permission_mode"),
            system_prompt=session.dir.read_system_prompt() if spec.has_system_prompt else None,
            system_prompt_file=session.dir.system_prompt if spec.has_system_prompt else None,
            mcp_servers=servers,
            mcp_config_file=file,
            tools=spec.tools,
            setting_sources=self._backend.config.setting_sources,
            expand=bool(prompt.get("expand")),
            command_prompt=bool(prompt.get("command")),
            args=tuple(self._backend.config.args),
            scratch=run_dir.scratch,
            content=content_of(prompt.get("content")),
            output_schema=prompt.get("output_schema"),
            caller_tools=tuple(prompt.get("tools", ())),
            cached=cached_parts(prompt.get("content")) if self._backend.adapter.capabilities.caches else (),
            tool_results=tuple(prompt.get("tool_results", ())),
            sampling=prompt.get("sampling", {}),
            cli_tools=spec.cli_tools,
            system_prompt_mode=spec.system_prompt_mode,
            api=self._backend.config.api,
        )

    def _mcp(self) -> tuple[dict[str, Any] | None, str | None]:
        """The MCP servers and the file with them: those that the client brought, and our bridge where there are tools."""
        session = self._session
        if session.tools is not None:
            return servers_with_bridge(session, session.tools), session.dir.bridge_config
        return (session.dir.read_mcp_servers(), session.dir.mcp_config) if session.spec.has_mcp_config else (None, None)

    def keeper_spec(self, launch: Launch) -> dict[str, Any]:
        """The keeper's launch spec. It passes through a pipe only: the environment in it holds what was set on purpose."""
        session, limits = self._session, self._backend.config.limits
        timeouts = session.timeouts
        return {
            "proto": KEEPER_PROTO,
            "run_dir": launch.run_dir.path,
            "marker": launch.draft.markers,
            "argv": list(launch.spec.argv),
            "env": launch.draft.env,
            "cwd": session.spec.cwd,
            "stdin": launch.spec.stdin,
            "stdin_eof": launch.spec.stdin_eof,
            "stdout_mode": launch.spec.stdout_mode,
            "limits": {
                "spool_bytes": limits.spool_bytes,
                "stderr_bytes": limits.stderr_bytes,
                "memory": limits.memory,
                "pids": limits.pids,
            },
            "wall_s": 2 * timeouts.turn + WALL_SLACK_S if timeouts.turn and not launch.draft.request.live else 0,
            "lease_s": session.services.config.daemon.lease_s,
            "term_grace_s": timeouts.term_grace,
            "int_grace_s": timeouts.int_grace,
            "orphans": self._backend.config.orphans,
            "orphan_grace_s": 0,
            "oom_score_adj": 300,
            "cgroup": launch.cgroup,
        }


def prompt_id(session_id: str, what: str, run: int) -> str:
    """By what a live CLI names a prompt again: the same one in the same run has the same id, and is run once (claude 2.1.329)."""
    return str(uuid.uuid5(uuid.UUID(session_id), f"{run}/{what}"))


def drop_cgroup(run_dir: RunDir) -> None:
    """A run that never came to be leaves no empty cgroup behind."""
    if (cgroup := run_dir.intent().get("cgroup")) is not None:
        cgroups.remove(cgroup)
