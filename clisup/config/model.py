"""Configuration model: every key, its default and its check. Errors for unknown keys name the nearest known key.

Pure: `clisup.host.config_file` reads the file; this module makes a frozen `Config` of a parsed TOML mapping.
"""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each annotation at every start.

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import AfterValidator, BaseModel, Field, SecretStr, ValidationError, model_validator

from clisup.config.tables import ConfigTable, FleetConfig, GatewayConfig, Place, WebConfig
from clisup.errors import ConfigurationError
from clisup.model.lines.framing import DEFAULT_LINE_LIMIT
from clisup.model.structs import JsonObject
from clisup.policy.approval_rules import MAX_RULES, ApprovalRule
from clisup.policy.notify import signing_key
from clisup.policy.prices import Price

Dialect = Literal["", "chat", "responses"]
API_KINDS = ("anthropic-api", "openai-api")
API_KEYS = ("base_url", "key_env", "dialect", "max_tokens", "thinking", "effort")
"""Keys of `[backends.NAME]` that only these kinds have."""


class ApiSettings(NamedTuple):
    """Settings of one API backend, as in the configuration. Empty values stand for the API's own defaults."""

    base_url: str = ""
    key_env: str = ""
    dialect: Dialect = ""
    max_tokens: int = 0
    thinking: str = ""
    effort: str = ""


NO_API = ApiSettings()


class Preset(NamedTuple):
    """Settings of one provider.

    `key_env` names the variable with its key; empty: the provider takes requests without a key.
    """

    kind: str
    base_url: str
    key_env: str
    dialect: Dialect


PRESETS: dict[str, Preset] = {
    "anthropic-api": Preset("anthropic-api", "", "ANTHROPIC_API_KEY", ""),
    "openai-api": Preset("openai-api", "", "OPENAI_API_KEY", "responses"),
    "groq": Preset("openai-api", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "chat"),
    "openrouter": Preset("openai-api", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "chat"),
    "ollama": Preset("openai-api", "http://127.0.0.1:11434/v1", "", "chat"),
}
"""Presets by name. A table `[backends.groq]`, or any table with `kind = "groq"`, has these values unless it sets its
own."""


Seconds = Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Mode = Literal["auto", "one-shot", "live"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

MIB = 1024 * 1024
MAX_PROBLEMS = 100  # problems that an error reports for one file
MAX_NOTIFY = 32  # tables [[notify]]


class TimeoutsConfig(ConfigTable):
    """Seconds; 0 = never. docs/reference/configuration.md lists the signs of life in each phase."""

    startup: Seconds = 60
    opening: Seconds = 300
    model_idle: Seconds = 180
    tool_idle: Seconds = 1800
    hook: Seconds = 1800
    compaction: Seconds = 900
    login: Seconds = 60
    approval: Seconds = 0
    background: Seconds = 660
    tail: Seconds = 2
    linger: Seconds = 5
    turn: Seconds = 0
    int_grace: Seconds = 3
    term_grace: Seconds = 5


class LimitsConfig(ConfigTable):
    """Sizes in bytes; 0 = no limit (`spool_bytes`, `memory`, `pids`, `retries`, `retry_wait_s`)."""

    spool_bytes: Count = 4 * 1024 * MIB
    line_bytes: Annotated[int, Field(ge=4096, le=1024 * MIB)] = DEFAULT_LINE_LIMIT
    stderr_bytes: Annotated[int, Field(ge=4096)] = 8 * MIB
    inline_bytes: Annotated[int, Field(ge=1024, le=16 * MIB)] = 256 * 1024
    stderr_events: Annotated[int, Field(ge=0, le=100_000)] = 200
    open_approvals: Annotated[int, Field(ge=1, le=100_000)] = 256
    unparsed_events: Annotated[int, Field(ge=0, le=1_000_000)] = 1000
    line_values: Annotated[int, Field(ge=1000, le=100_000_000)] = 100_000
    memory: Count = 0
    pids: Count = 0
    evidence_windows: Annotated[int, Field(ge=0, le=1000)] = 3
    retries: Annotated[int, Field(ge=0, le=1000)] = 0
    retry_wait_s: Seconds = 0


class ApprovalsConfig(ConfigTable):
    """Handling of a CLI's questions: rules, and the action if nobody follows the session for `unattended_after_s`."""

    rules: Annotated[list[ApprovalRule], Field(max_length=MAX_RULES)] = []
    unattended: Literal["wait", "deny"] = "wait"
    unattended_after_s: Seconds = 60


class LiveConfig(ConfigTable):
    """Limits of a live process: seconds without a turn, bytes of stdout in its spool; 0 = no such limit."""

    idle_s: Seconds = 600
    spool_bytes: Count = 256 * MIB


class BackendConfig(ConfigTable):
    """Table `[backends.NAME]`."""

    kind: str = ""
    command: Annotated[list[str], Field(max_length=64)] = []
    mode: Mode = "auto"
    permission_mode: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_-]*$")] = ""
    model: Annotated[str, Field(max_length=256, pattern=r"^([^\x00-\x1f-][^\x00-\x1f]*)?$")] = ""
    account: Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]{0,47})?$")] = ""
    base_url: Annotated[str, Field(max_length=2048, pattern=r"^(https?://[^\s]+)?$")] = ""
    key_env: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")] = ""
    dialect: Dialect = ""
    max_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    thinking: Annotated[str, Field(pattern=r"^(adaptive|off|[1-9][0-9]{3,6})?$")] = ""
    effort: Annotated[str, Field(pattern=r"^[a-z]{0,16}$")] = ""
    auth_method: Annotated[str, Field(max_length=256, pattern=r"^[^\x00-\x1f]*$")] = ""
    versions: str = ""
    args: list[str] = []
    pass_env: list[str] = []
    request_env: list[Name] = []
    env: dict[Name, SecretStr] = {}
    env_files: dict[Name, Annotated[str, Field(min_length=1, max_length=4096)]] = {}
    setting_sources: str | None = "user"
    orphans: Literal["keep", "grace", "kill"] = "grace"
    approvals: ApprovalsConfig = ApprovalsConfig.model_construct()
    timeouts: TimeoutsConfig = TimeoutsConfig.model_construct()
    limits: LimitsConfig = LimitsConfig.model_construct()
    live: LiveConfig = LiveConfig.model_construct()

    @property
    def passed(self) -> list[str]:
        """Return the names that the configuration lets through from the daemon's environment."""
        return [*self.pass_env, self.key_env] if self.key_env else self.pass_env

    @property
    def api(self) -> ApiSettings:
        """Return the settings of an API backend."""
        return ApiSettings(self.base_url, self.key_env, self.dialect, self.max_tokens, self.thinking, self.effort)


class RetentionConfig(ConfigTable):
    """Limits on kept events and spools, by age and in total; 0 = no such limit.

    `every_s` is the interval of the check. `idle_close` is the rest, in seconds, after which a session is closed.
    """

    days: Annotated[float, Field(ge=0, le=36_500, allow_inf_nan=False)] = 30
    bytes: Count = 10 * 1024 * MIB
    keys: Annotated[int, Field(ge=1, le=100_000)] = 1000
    every_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 600
    idle_close: Seconds = 7 * 86_400


class DaemonConfig(ConfigTable):
    """Table `[daemon]`. Empty paths mean the defaults of `clisup.locations`."""

    socket: Place = ""
    state_dir: Place = ""
    scrub_lists: Place = ""
    max_sessions: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    max_running: Annotated[int, Field(ge=0, le=100_000)] = 0
    max_live: Annotated[int, Field(ge=0, le=100_000)] = 8
    max_cursors: Annotated[int, Field(ge=1, le=10_000)] = 256
    max_queue: Annotated[int, Field(ge=1, le=100_000)] = 100
    max_frame_bytes: Annotated[int, Field(ge=4096, le=20 * MIB)] = 16 * MIB
    max_frame_values: Annotated[int, Field(ge=1000, le=10_000_000)] = 100_000
    max_images: Annotated[int, Field(ge=0, le=1000)] = 20
    max_image_bytes: Annotated[int, Field(ge=1, le=64 * MIB)] = 8 * MIB
    max_connections: Annotated[int, Field(ge=1, le=100_000)] = 512
    max_requests: Annotated[int, Field(ge=1, le=10_000)] = 64
    frame_deadline_s: Seconds = 30
    request_burst: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    request_rate: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    request_wait_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 10
    max_held_bytes: Annotated[int, Field(ge=MIB, le=2**40)] = 256 * MIB
    tool_timeout_s: Annotated[float, Field(gt=0, le=604_800, allow_inf_nan=False)] = 600
    tool_wait_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 60
    segment_bytes: Annotated[int, Field(ge=65536, le=1024 * MIB)] = 8 * MIB
    fsync: Literal["none", "turn"] = "turn"
    on_stop: Literal["drain", "detach", "kill"] = "drain"
    drain_s: Seconds = 60
    lease_s: Seconds = 86_400
    limit_hold_s: Seconds = 691_200
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    max_log_bytes: Annotated[int, Field(ge=65536, le=1024 * MIB)] = 10 * MIB
    autostart: bool = True
    keep_prompts: Literal["on", "off"] = "on"
    retention: RetentionConfig = RetentionConfig.model_construct()


class TracingConfig(ConfigTable):
    """Table `[tracing]`: spans of turns and tools, sent to a collector by OTLP over HTTP. Off by default."""

    enabled: bool = False
    endpoint: Annotated[str, Field(pattern=r"^https?://[^\s]+$", max_length=2048)] = "http://127.0.0.1:4318"
    headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], SecretStr] = {}
    service_name: Annotated[str, Field(min_length=1, max_length=256)] = "clisup"
    content: bool = False
    max_queue: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    timeout_s: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)] = 10


NotifyEvent = Literal["approval_requested", "turn_failed", "turn_completed", "limit"]
NotifyFormat = Literal["json", "ntfy", "slack", "gotify"]
_LOOPBACK = re.compile(r"http://(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?(/|$)")
_ADDRESS = re.compile(r"https?://([^\s/@:]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(/[\x21-\x7e]*)?")


def _is_address(value: SecretStr | None) -> SecretStr | None:
    text = value.get_secret_value() if value is not None else ""
    if text and (len(text) > 2048 or not _ADDRESS.fullmatch(text)):
        raise ValueError("Input should be an address such as https://ntfy.sh/my-topic, without a user or a password")
    if text.startswith("http://") and not _LOOPBACK.match(text):
        raise ValueError("Input should begin with https://: http:// is for servers on this machine only")
    return value


def _is_signing_key(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        signing_key(value.get_secret_value())
    return value


class NotifyConfig(ConfigTable):
    """Table `[[notify]]`: events that go to a command, or to an address."""

    name: Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]{0,47})?$")] = ""
    on: Annotated[list[NotifyEvent], Field(min_length=1, max_length=4)] = ["approval_requested", "turn_failed"]
    command: Annotated[list[str], Field(max_length=64)] = []
    url: Annotated[SecretStr, AfterValidator(_is_address)] | None = None
    format: NotifyFormat = "json"
    headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")], SecretStr] = {}
    secret: Annotated[SecretStr, AfterValidator(_is_signing_key)] | None = None
    secret_env: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")] = ""
    secret_file: Annotated[str, Field(max_length=4096)] = ""
    labels: dict[str, str] = {}
    backends: list[str] = []
    pages: Annotated[str, Field(pattern=r"^(https?://[^\s/@<>|\"]{1,255})?$")] = ""
    timeout_s: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)] = 10
    retries: Annotated[int, Field(ge=0, le=100)] = 10
    max_age_s: Annotated[float, Field(gt=0, le=2_592_000, allow_inf_nan=False)] = 86_400

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("Input should have exactly one of command and url")
        if self.command and (self.headers or self.format != "json" or self.signed):
            raise ValueError("Input should have no headers, no secret and no other format than json beside a command")
        if sum(map(bool, (self.secret, self.secret_env, self.secret_file))) > 1:
            raise ValueError("Input should have only one of secret, secret_env and secret_file")
        if any(not _HEADER_VALUE.fullmatch(value.get_secret_value()) for value in self.headers.values()):
            raise ValueError("Input should have headers of one line of ASCII text each")
        return self

    @property
    def signed(self) -> bool:
        """Tell whether requests are signed."""
        return bool(self.secret or self.secret_env or self.secret_file)

    @property
    def target(self) -> str:
        """Return the program, or the host of the address. The rest of an address may be a secret."""
        if self.url is None:
            return self.command[0].rpartition("/")[2]
        return self.url.get_secret_value().partition("://")[2].partition("/")[0]

    @property
    def label(self) -> str:
        """Return the name: of the table, else of the program or the host."""
        return self.name or re.sub(r"[^a-z0-9._-]", "-", self.target.lower()).strip("._-")[:48] or "notify"


_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,4096}")


def _distinct(tables: list[NotifyConfig]) -> list[NotifyConfig]:
    labels = [table.label for table in tables]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise ValueError(f"Input should have tables with different names, and {twice!r} is there twice: set name")
    return tables


class DefaultsConfig(ConfigTable):
    """Table `[defaults]`: values of sessions that name none. The table of a backend takes precedence.

    An empty `backend` is the only installed CLI. `mode` applies to the backends that have this mode. `timeout` is the
    limit of a turn in seconds, 0 = never.
    """

    backend: Annotated[str, Field(pattern=r"^([a-z][a-z0-9_-]{0,63})?$")] = ""
    mode: Mode = "auto"
    timeout: Seconds = 0


class Config(ConfigTable):
    """Whole configuration. Without a file: the built-in backends, all defaults."""

    daemon: DaemonConfig = DaemonConfig.model_construct()
    defaults: DefaultsConfig = DefaultsConfig.model_construct()
    backends: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")], BackendConfig] = {}
    tracing: TracingConfig = TracingConfig.model_construct()
    fleet: FleetConfig = FleetConfig.model_construct()
    web: WebConfig = WebConfig.model_construct()
    gateway: GatewayConfig = GatewayConfig.model_construct()
    notify: Annotated[list[NotifyConfig], Field(max_length=MAX_NOTIFY), AfterValidator(_distinct)] = []
    prices: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9*?\[][A-Za-z0-9 ._:/@*?\[\]!-]{0,127}$")], Price] = {}

    @property
    def untouched(self) -> frozenset[str]:
        """Return the built-in backends without a table in the file."""
        return frozenset(name for name, backend in self.backends.items() if backend is _DEFAULTS.get(name))

    @property
    def is_default(self) -> bool:
        """Tell whether there was no file, or an empty one."""
        return self.model_fields_set <= {"backends"} and self.untouched == _DEFAULTS.keys()


def _resolved(name: str, backend: BackendConfig) -> BackendConfig:
    """Return the backend with its kind, and with its provider's preset.

    A preset's key goes only to the preset's own address. With another `base_url`, the table must also set `key_env`.
    """
    kind = backend.kind or name
    if (preset := PRESETS.get(kind)) is None:
        return backend if backend.kind else backend.model_copy(update={"kind": kind})
    own = backend.model_fields_set
    changes: JsonObject = {"kind": preset.kind}
    if "base_url" not in own:
        changes |= {"base_url": preset.base_url, "key_env": preset.key_env, "dialect": preset.dialect}
    elif preset.kind == "openai-api":
        changes["dialect"] = "chat"  # servers other than OpenAI's speak this dialect
    return backend.model_copy(update={key: value for key, value in changes.items() if key == "kind" or key not in own})


BUILT_IN_BACKENDS = ("anthropic-api", "claude", "codex", "demo", "gemini", "openai-api", "qwen")
_DEFAULTS = {
    name: _resolved(name, BackendConfig.model_construct(kind=name)) for name in BUILT_IN_BACKENDS
}  # recognised by identity: see Config.untouched


class Problem(NamedTuple):
    """Error in one key. `path` is its place in the parsed TOML, `nearest` the most similar known key."""

    key: str
    path: tuple[str | int, ...]
    message: str
    nearest: str | None = None


def parse_config(raw: Mapping[str, Any], *, source: str = "the configuration") -> Config:
    """Check a parsed TOML mapping.

    Raises `ConfigurationError` with the first wrong key, the error and the nearest known key. Its `data` has
    `problems`, one mapping for each wrong key.
    """
    try:
        config = Config.model_validate(dict(raw))
    except ValidationError as error:
        raise refusal(_problems(error), source) from None
    backends = _DEFAULTS | config.backends
    named = {name: b if b is _DEFAULTS.get(name) else _resolved(name, b) for name, b in backends.items()}
    return config.model_copy(update={"backends": named})


def with_env(backend: BackendConfig, values: Mapping[str, str]) -> BackendConfig:
    """Return the same backend with these values from files added to its `env`."""
    return backend.model_copy(update={"env": backend.env | {name: SecretStr(value) for name, value in values.items()}})


def with_secret(table: NotifyConfig, secret: str) -> NotifyConfig:
    """Return the same table with this secret in place of its source. Raises `ValueError` for an invalid secret."""
    signing_key(secret)
    return table.model_copy(update={"secret": SecretStr(secret), "secret_env": "", "secret_file": ""})


def refusal(
    problems: Sequence[Problem], source: str, lines: Mapping[tuple[str | int, ...], int] | None = None
) -> ConfigurationError:
    """Return the error for these problems. If `lines` are known, the error names the line."""
    told = [{**_told(problem), **_line(problem, lines or {})} for problem in problems]
    first = told[0]
    place = f" (line {first['line']})" if "line" in first else ""
    more = f" (and {len(told) - 1} more: clisup config check)" if len(told) > 1 else ""
    return ConfigurationError(
        f"cannot use {source}, because {first['key']!r}{place} {first['message']}{more}",
        hint=f"correct {source}",
        source=source,
        key=first["key"],
        problems=told,
    )


def problems_of(error: ConfigurationError) -> list[Problem]:
    """Return the problems from which `refusal` made this error."""
    return [Problem(p["key"], tuple(p["path"]), p["message"], p.get("nearest")) for p in error.data.get("problems", ())]


def _told(problem: Problem) -> JsonObject:
    told = {"key": problem.key, "path": list(problem.path), "message": problem.message}
    return {**told, "nearest": problem.nearest} if problem.nearest else told


def _line(problem: Problem, lines: Mapping[tuple[str | int, ...], int]) -> dict[str, int]:
    """Return the line of the key, or of the nearest table around it."""
    for end in range(len(problem.path), 0, -1):
        if (line := lines.get(problem.path[:end])) is not None:
            return {"line": line}
    return {}


def _problems(error: ValidationError) -> list[Problem]:
    """Return all problems, in words. Values are left out, because a value may be a secret."""
    found = []
    for problem in error.errors(include_input=False, include_url=False)[:MAX_PROBLEMS]:
        path = tuple(part for part in problem["loc"] if part != "[key]")
        key = ".".join(str(part) for part in path)
        if problem["type"] == "extra_forbidden":
            import difflib  # only a configuration with mistakes needs it

            near = difflib.get_close_matches(str(path[-1]), _known_keys(path[:-1]), n=1, cutoff=0.5)
            suggestion = f"; the nearest known key is {near[0]!r}" if near else ""
            found.append(Problem(key, path, f"is not a known key{suggestion}", near[0] if near else None))
        else:
            found.append(Problem(key, path, f"is wrong: {problem['msg'].removeprefix('Value error, ')}"))
    return found


def _known_keys(path: tuple[Any, ...]) -> list[str]:
    model: type[BaseModel] = Config
    if path[:1] == ("backends",):
        model, path = BackendConfig, path[2:]
    elif path[:1] == ("prices",):
        model, path = Price, path[2:]
    for part in path:
        if isinstance(part, int):  # an entry of a list of tables
            continue
        field = model.model_fields.get(str(part))
        found = (get_args(field.annotation) or (field.annotation,))[0] if field else None
        model = found if isinstance(found, type) else ConfigTable
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
    return list(model.model_fields)
