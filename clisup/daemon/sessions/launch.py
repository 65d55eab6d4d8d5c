"""Launch of a run: the adapter's launch spec, the environment, the files, and the keeper's spec."""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass
from typing import Any

from clisup.backends.base import LaunchRequest, LaunchSpec
from clisup.daemon.backends import Backend
from clisup.daemon.sessions.cli_session import CliSession
from clisup.daemon.sessions.context import SessionContext
from clisup.daemon.tools.calls import SessionTools, servers_with_bridge
from clisup.host.failpoints import failpoint
from clisup.host.process import cgroups
from clisup.host.process.keepers import KEEPER_PROTO
from clisup.host.threads import in_thread
from clisup.model.prompts.content import cached_parts, content_of
from clisup.model.prompts.options import StoredPrompt
from clisup.model.sessions.turn_state import Intent
from clisup.policy.fingerprint import fingerprint
from clisup.policy.watchdog import TurnTimeouts
from clisup.store.session_dir import RunDir

__all__ = ["Draft", "Launch", "Launcher", "drop_cgroup", "prompt_id"]

_ANY = "-"  # placeholder: some adapters require a model
WALL_SLACK_S = 10.0
"""Extra time of the keeper's own limit. The daemon's limit comes first: the keeper's is for a run without a daemon."""

MAX_WALL_S = 366 * 86_400.0
"""Longest wall-clock limit that a keeper takes."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Launch of a turn's CLI, not yet on disk. Only a live run has a `fingerprint`."""

    request: LaunchRequest
    spec: LaunchSpec
    env: dict[str, str]
    markers: dict[str, str]
    fingerprint: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Launch:
    """Run that is ready to start: the intent is on disk."""

    number: int
    run_dir: RunDir
    draft: Draft
    cgroup: str | None

    @property
    def spec(self) -> LaunchSpec:
        return self.draft.spec


class Launcher:
    """Prepares the runs of a session."""

    __slots__ = ("_cli", "_context", "_tools")

    def __init__(self, context: SessionContext, cli: CliSession, tools: SessionTools | None) -> None:
        self._context = context
        self._cli = cli
        self._tools = tools

    @property
    def _backend(self) -> Backend:
        return self._context.backend

    async def prepare(self, turn_id: str, prompt: StoredPrompt, mode: str | None) -> Launch:
        """Prepare everything up to the start. `mode` is the correction after a first try.

        Raises `ClisupError` if the backend is unavailable or lacks a feature, if a foreign process has the native
        session open, or if the disk refuses.
        """
        context = self._context
        tool = await self._backend.ready()
        await self._cli.check_before_run(turn_id)
        number = context.dir.next_run(context.ledger.runs)
        draft = self._draft(tool, turn_id, prompt, self._cli.name(mode, number), number)
        run_dir = context.dir.run(number)
        cgroup = context.services.cgroups.make(run_dir.mark())
        if cgroup is not None:
            # The watchdog checks both limits as well, each second, because a cgroup may lack the controllers. rlimits do
            # not help: RLIMIT_AS breaks node and bun, and RLIMIT_NPROC counts all processes of the user.
            limits = self._backend.config.limits
            cgroups.limit(cgroup, memory=limits.memory, pids=limits.pids)
        intent: Intent = {
            "turn_id": turn_id,
            "argv": list(draft.spec.argv),
            "env_names": list(draft.env),
            "cgroup": cgroup,
            "transcript_at": self._cli.transcript_size(),
            "native": (draft.request.native_session_id, draft.request.resume),
        }
        if draft.fingerprint is not None:
            intent["live"] = draft.fingerprint
        failpoint("intent.before")
        with context.services.storage.watched():
            await in_thread(run_dir.create, intent, draft.spec.files)
            if self._tools is not None:
                config = {**context.dir.read_mcp(), "mcpServers": draft.request.mcp_servers}
                await in_thread(context.dir.write_bridge_config, config)
        failpoint("intent.after")
        return Launch(number, run_dir, draft, cgroup)

    async def later(self, turn_id: str, prompt: StoredPrompt, number: int, *, resumed: bool) -> Draft:
        """Return the launch of a later turn of the live run `number`. Raises as `prepare` does.

        `resumed`: the run began with an existing native session.
        """
        named = (self._context.native_id, resumed)
        return self._draft(await self._backend.ready(), turn_id, prompt, named, number, later=True)

    def _draft(
        self,
        tool: tuple[tuple[str, ...], str | None],
        turn_id: str,
        prompt: StoredPrompt,
        named: tuple[str | None, bool],
        number: int,
        *,
        later: bool = False,
    ) -> Draft:
        context, backend = self._context, self._backend
        context.dir.check(tools=self._tools is not None and self._tools.token is None)
        argv, version = tool
        request = self._request(argv, prompt, named, context.dir.run(number))
        request = dataclasses.replace(request, later=later, prompt_id=prompt_id(context.id, turn_id, number))
        spec = backend.adapter.launch(request)
        markers = context.dir.run(number).mark().variables()
        env, _ = backend.environment(
            request_env=context.request_env, sets=spec.env, closed=spec.closed_env, markers=markers
        )
        marked, by_prompt = None, backend.adapter.capabilities.by_prompt
        if request.live:
            bare = dataclasses.replace(
                request, native_session_id=None, resume=False, later=False, permission_mode=None, output_schema=None,
                caller_tools=(), tool_results=(), sampling={}, prompt="-", content=(),
                model=_ANY if by_prompt else None,
            )  # fmt: skip
            marked = fingerprint(
                command=argv,
                version=version,
                arguments=backend.adapter.launch(bare).argv[len(argv) :],
                model=None if "model" in by_prompt else request.model,
                permission_mode=request.permission_mode,
                system_prompt=request.system_prompt,
                mcp=repr(request.mcp_servers),
                environment={name: value for name, value in env.items() if name not in markers},
                limits=(
                    backend.config.limits.model_dump(),
                    backend.config.orphans,
                    context.services.config.daemon.lease_s,
                ),
                output_schema=None if "output_schema" in by_prompt else request.output_schema,
            )
        return Draft(request, spec, env, markers, marked)

    async def steering(self, prompt: StoredPrompt, prompt_id: str, number: int) -> tuple[LaunchRequest, str]:
        """Return the request and the stdin of a prompt to the live run `number` during a turn. Raises as `prepare` does."""
        argv, _ = await self._backend.ready()
        request = self._request(argv, prompt, (self._context.native_id, True), self._context.dir.run(number))
        request = dataclasses.replace(request, later=True, prompt_id=prompt_id)
        return request, self._backend.adapter.launch(request).stdin

    async def relaunch_request(
        self, run_dir: RunDir, prompt: StoredPrompt | None, *, later: str | None = None
    ) -> LaunchRequest:
        """Return the launch request of an earlier daemon's run, or that of `later`: a later turn of its process.

        The decoder's replies depend on the request.
        """
        intent = await self._context.services.storage.with_retry(run_dir.intent)
        native, resume = intent.get("native") or self._cli.name(None, 1)
        named = (self._context.native_id if later else native, bool(resume))
        request = self._request(tuple(intent.get("argv", ())), prompt or {"text": "-"}, named, run_dir)
        turn_id = later or intent.get("turn_id")
        return dataclasses.replace(
            request,
            live="live" in intent,
            later=later is not None,
            prompt_id=prompt_id(self._context.id, turn_id, run_dir.number) if turn_id else None,
        )

    def _request(
        self, argv: tuple[str, ...], prompt: StoredPrompt, named: tuple[str | None, bool], run_dir: RunDir
    ) -> LaunchRequest:
        context, spec = self._context, self._context.spec
        servers, file = self._mcp()
        return LaunchRequest(
            run=run_dir.number,
            live=context.live_mode,
            command=argv,
            prompt=str(prompt["text"]),
            native_session_id=named[0],
            resume=named[1],
            cwd=spec.cwd,
            model=context.setting("model") or self._backend.config.model or None,
            permission_mode=context.setting("permission_mode") or self._backend.config.permission_mode or None,
            system_prompt=context.dir.read_system_prompt() if spec.has_system_prompt else None,
            system_prompt_file=context.dir.system_prompt if spec.has_system_prompt else None,
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
            auth_method=self._backend.config.auth_method,
        )

    def _mcp(self) -> tuple[dict[str, Any] | None, str | None]:
        """Return the MCP servers and the file: the client's servers, and the bridge of the session's tools."""
        context = self._context
        if self._tools is not None:
            return servers_with_bridge(context, self._tools), context.dir.bridge_config
        return (context.dir.read_mcp_servers(), context.dir.mcp_config) if context.spec.has_mcp_config else (None, None)

    def keeper_spec(self, launch: Launch, timeouts: TurnTimeouts) -> dict[str, Any]:
        """Return the keeper's launch spec, with the `timeouts` of the turn.

        The spec goes through a pipe only: its environment may hold secrets.
        """
        context, limits = self._context, self._backend.config.limits
        return {
            "proto": KEEPER_PROTO,
            "run_dir": launch.run_dir.path,
            "marker": launch.draft.markers,
            "argv": list(launch.spec.argv),
            "env": launch.draft.env,
            "cwd": context.spec.cwd,
            "stdin": launch.spec.stdin,
            "stdin_eof": launch.spec.stdin_eof,
            "stdout_mode": launch.spec.stdout_mode,
            "limits": {
                "spool_bytes": limits.spool_bytes,
                "stderr_bytes": limits.stderr_bytes,
                "memory": limits.memory,
                "pids": limits.pids,
            },
            "wall_s": min(2 * timeouts.turn + WALL_SLACK_S, MAX_WALL_S)
            if timeouts.turn and not launch.draft.request.live
            else 0,
            "lease_s": context.services.config.daemon.lease_s,
            "term_grace_s": timeouts.term_grace,
            "int_grace_s": timeouts.int_grace,
            "orphans": self._backend.config.orphans,
            "orphan_grace_s": 0,
            "oom_score_adj": 300,
            "cgroup": launch.cgroup,
        }


def prompt_id(session_id: str, what: str, run: int) -> str:
    """Return the id of a prompt for a live CLI. The CLI runs each id once in a run (claude 2.1.329)."""
    return str(uuid.uuid5(uuid.UUID(session_id), f"{run}/{what}"))


def drop_cgroup(run_dir: RunDir) -> None:
    """Remove the cgroup of a run that never started."""
    if (cgroup := run_dir.cgroup()) is not None:
        cgroups.remove(cgroup)
