"""Private files of a session, for its CLI: variables, system prompt, MCP configuration, tools.

A tool of the CLI can write them. So the journal has their digests (`clisup.store.opened`), and a file with another
digest counts as missing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from clisup.config.session_spec import SessionSpec
from clisup.errors import WorldError
from clisup.host.files import read_optional, write_atomic, write_json

__all__ = ["BroughtTools", "PrivateFiles"]

SECRETS, SYSTEM_PROMPT, MCP_CONFIG, TOOLS = "secrets.json", "system_prompt.txt", "mcp.json", "tools.json"
SEALED = (SECRETS, SYSTEM_PROMPT, MCP_CONFIG, TOOLS)
SALT = "salt"


class BroughtTools(NamedTuple):
    """Tools that a session's client runs, as in the request, and the token that identifies the session's MCP bridge.

    Both stay the same as long as the session is open.
    """

    definitions: list[dict[str, Any]]
    token: str

    def __repr__(self) -> str:
        return f"<{len(self.definitions)} tools and a token>"


class PrivateFiles:
    """Private files in the directory `path` of the session `id`.

    `proofs` are the journal's digests of the files by name. None: nothing is compared.
    """

    __slots__ = ("id", "path", "proofs")

    def __init__(self, session_id: str, path: str, proofs: Mapping[str, str] | None) -> None:
        self.id = session_id
        self.path = path
        self.proofs = proofs

    def write_private(
        self,
        variables: dict[str, str],
        system_prompt: str | None,
        mcp_config: bytes | None,
        tools: list[dict[str, Any]] | None,
    ) -> dict[str, str]:
        """Write the files of a request, and return their digests. Raises `WorldError(storage_failed)`."""
        token = f"{self.id}.{secrets.token_urlsafe(32)}"
        held = {
            SECRETS: json.dumps(variables).encode() if variables else None,
            SYSTEM_PROMPT: system_prompt.encode() if system_prompt is not None else None,
            MCP_CONFIG: mcp_config,
            TOOLS: json.dumps({"tools": tools, "token": token}).encode() if tools else None,
        }
        files = {name: data for name, data in held.items() if data is not None}
        for name, data in files.items():
            write_atomic(self._private(name), data)
        return self._digests(files)

    def seal(self) -> dict[str, str]:
        """Return the digests of the files of a session that an earlier version opened. Raises `WorldError(storage_failed)`."""
        held = {name: read_optional(self._private(name)) for name in SEALED}
        return self._digests({name: data for name, data in held.items() if data is not None})

    def _digests(self, files: Mapping[str, bytes]) -> dict[str, str]:
        if not files:
            return {}
        salt = secrets.token_hex(32).encode()
        write_atomic(self._private(SALT), salt)
        return {name: _digest_of(salt, data) for name, data in files.items()}

    def spoiled(self, *, besides: str = "") -> list[str]:
        """Return the private files that are missing, or not those that the session was opened with."""
        return [f"private/{name}" for name in self.proofs or () if name != besides and self._read(name) is None]

    def check(self, *, tools: bool) -> None:
        """Raise `WorldError(storage_failed)` if a private file is not the one that the session was opened with.

        The definitions of tools may be a megabyte, so only `tools` checks them, too.
        """
        if names := self.spoiled(besides="" if tools else TOOLS):
            raise WorldError(
                f"session {self.id} cannot be used: {' and '.join(names)} was changed outside of the daemon",
                kind="storage_failed",
                hint="open a new session",
            )

    def _private(self, name: str) -> str:
        return os.path.join(self.path, "private", name)

    def _read(self, name: str) -> bytes | None:
        """Return a private file, or None if it is missing or not the one that the journal proves."""
        data = read_optional(self._private(name))
        if data is None or self.proofs is None:
            return data
        salt = read_optional(self._private(SALT)) or b""
        return data if hmac.compare_digest(_digest_of(salt, data), self.proofs.get(name, "")) else None

    def _read_json(self, name: str) -> dict[str, Any] | None:
        try:
            value = json.loads(self._read(name) or b"null")
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    @property
    def system_prompt(self) -> str:
        """Return the path of the stored system prompt."""
        return self._private(SYSTEM_PROMPT)

    @property
    def mcp_config(self) -> str:
        """Return the path of the stored MCP configuration."""
        return self._private(MCP_CONFIG)

    def read_tools(self) -> BroughtTools | None:
        """Return the tools of the request. Return None for a session without tools, and after the session is closed."""
        match self._read_json(TOOLS):
            case {"tools": list(definitions), "token": str(token)}:
                return BroughtTools(definitions, token)
        return None

    @property
    def bridge_config(self) -> str:
        """Return the path of the MCP configuration that includes our server."""
        return self._private("bridge.json")

    def write_bridge_config(self, config: Mapping[str, Any]) -> None:
        """Write the MCP configuration that includes our server, for the CLI to read."""
        write_json(self.bridge_config, dict(config))

    def read_system_prompt(self) -> str | None:
        """Return the system prompt of the request, or None."""
        data = self._read(SYSTEM_PROMPT)
        return data.decode("utf-8", "replace") if data is not None else None

    def read_mcp_config(self) -> bytes | None:
        """Return the MCP configuration of the request, as stored, or None."""
        return self._read(MCP_CONFIG)

    def read_mcp(self) -> dict[str, Any]:
        """Return the MCP configuration of the request as a dict, empty if the request had none."""
        return self._read_json(MCP_CONFIG) or {}

    def read_mcp_servers(self) -> dict[str, Any] | None:
        """Return the `mcpServers` of the request's MCP configuration, or None."""
        servers = self.read_mcp().get("mcpServers")
        return servers if isinstance(servers, dict) else None

    def secrets(self) -> dict[str, str]:
        """Return the variables of the request, with their values."""
        return {str(k): str(v) for k, v in (self._read_json(SECRETS) or {}).items()}

    def brought_secrets(self, spec: SessionSpec | None = None) -> list[str]:
        """Return values that may be secret besides the request's variables: of its MCP servers, and the bridge's token.

        Without the `spec`, the function looks in all files.
        """
        servers = self.server_secrets() if spec is None or spec.has_mcp_config else []
        return [*servers, *(self.bridge_secrets() if spec is None or spec.tools else [])]

    def server_secrets(self) -> list[str]:
        """Return the values that may be secret in the request's MCP servers."""
        return [str(value) for server in (self.read_mcp_servers() or {}).values() for value in _secret_values(server)]

    def bridge_secrets(self) -> list[str]:
        """Return the bridge's token in a list, empty if the session has no tools."""
        return [] if (tools := self.read_tools()) is None else [tools.token]


def _digest_of(salt: bytes, data: bytes) -> str:
    """Return the digest of a file for the journal.

    The journal outlives the files, so the digest needs the `salt`, which is removed with the files: nobody can try
    values of a secret against it.
    """
    return hmac.new(salt, data, hashlib.sha256).hexdigest()


def _secret_values(server: Any) -> list[Any]:
    """Return the values of an MCP server's variables and headers."""
    parts = [server.get(name) for name in ("env", "headers")] if isinstance(server, dict) else []
    return [value for part in parts if isinstance(part, dict) for value in part.values()]
