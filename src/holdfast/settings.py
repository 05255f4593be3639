"""Every setting: its name, type, default and meaning. Only this module reads the environment."""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from holdfast.errors import ConfigurationError

VERSION = "0.1.0"
PREFIX = "HOLDFAST_"
HIGHEST_PORT = 65_535
BLANKS = " \t\n\r\f\v"  # stripped from both ends of a queue's name
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_NOT_SETTINGS = re.compile(r"DEBUG|TEST_.*|(.*_)?SERVICE_(HOST|PORT)(_.*)?")  # Kubernetes sets the last
_WORKER_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")  # in notification payloads a space ends the name


def _setting(default: Any, doc: str, low: float | None = None, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"doc": doc, "low": low}, repr=not secret)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings, given in code as `Holdfast(lease=300)` or in the environment as `HOLDFAST_LEASE=300`."""

    dsn: str = _setting("", "PostgreSQL server: a libpq URL, or `embedded:PATH` to start a private one")
    schema: str = _setting("holdfast", "schema that holds Holdfast's tables")
    pooler: bool = _setting(False, "the DSN is a PgBouncer in transaction mode: no prepared statements, no LISTEN")
    connect_timeout: float = _setting(10.0, "seconds a call waits for a connection, and for a primary", 0.1)
    call_timeout: float = _setting(30.0, "seconds a database call may take", 0.1)
    pool_size: int = _setting(10, "connections for enqueue and reads; as many again for handlers' transactions", 1)

    lease: float = _setting(60.0, "seconds a claim is valid without renewal", 0.2)
    renew: float = _setting(20.0, "seconds between renewals; at most half of the lease", 0.05)
    poll: float = _setting(1.0, "seconds between polls of an empty queue (jittered by a quarter)", 0.01)
    notify: bool = _setting(True, "use LISTEN/NOTIFY to reduce latency; polling works without it")
    queues: str = _setting(
        "", "queues a worker serves, separated by commas; empty: default, its channels' queues and webhooks"
    )
    worker_name: str = _setting("worker", "prefix of a worker's id; the rest makes it unique")
    concurrency: int = _setting(50, "jobs a worker process runs at once", 1)
    prefetch: float = _setting(0.1, "seconds of work to claim ahead; 0 claims only what can start now", 0)
    claim_size: int = _setting(1000, "most jobs of one claim", 1)
    grace: float = _setting(25.0, "seconds a stopping worker lets running jobs finish", 0)
    child_processes: int = _setting(
        0, 'most child processes a worker runs for tasks with `runner="process"`; 0 is one per CPU', 0
    )
    process_memory: int = _setting(0, "MB of address space each child process may use; 0 is no limit", 0)
    process_max_jobs: int = _setting(1000, "jobs after which a child process is replaced; 0 is never", 0)
    process_max_rss: int = _setting(
        0, "MB of resident memory above which a child process is replaced after its job; 0 is never", 0
    )
    loop_warning: float = _setting(
        1.0, "seconds a handler may block the event loop before the worker logs its name and stack; 0 is never", 0
    )
    loop_timeout: float = _setting(
        30.0,
        "seconds a handler may block the event loop before the worker stops renewing leases and exits; a shorter "
        "timeout of the task, from 5 s, takes precedence; 0 is never",
        0,
    )
    upkeep: float = _setting(2.0, "seconds between the leader's rounds (promote, reclaim)", 0.05)

    amqp_enabled: bool = _setting(
        False,
        "announce jobs through RabbitMQ, for low latency without LISTEN; polling works without it; extra `rabbitmq`",
    )
    amqp_url: str = _setting(
        "amqp://guest:guest@127.0.0.1:5672/", "RabbitMQ server, `amqp://` or `amqps://`", secret=True
    )
    amqp_exchange: str = _setting("holdfast", "topic exchange to publish to; created if it does not exist")
    amqp_routing_key: str = _setting("jobs.trigger", "routing key of its messages")

    health_port: int = _setting(
        0, "port on which a worker serves `/live` and `/ready`, or the next free of 16; 0: none", 0
    )
    health_host: str = _setting("127.0.0.1", "address of that port; `0.0.0.0` is all of the machine's")
    health_file: str = _setting(
        "",
        "file that a worker touches every second while it is ready, and removes otherwise; `{pid}` is its process id",
    )
    health_require_amqp: bool = _setting(False, "a worker or service without its connection to RabbitMQ is not ready")

    max_payload: int = _setting(1_048_576, "largest payload in bytes", 2)
    max_result: int = _setting(1_048_576, "largest result in bytes; results are kept as long as history", 2)
    max_depth: int = _setting(100, "deepest nesting of a payload", 1)
    max_error: int = _setting(16_384, "longest stored error text, in characters; the middle of a traceback is cut", 100)

    secret_keys: str = _setting(
        "",
        "keys that seal webhook secrets at rest, separated by commas: the first seals, all open; "
        "`holdfast webhooks key` makes one",
        secret=True,
    )

    nat64_prefixes: str = _setting(
        "",
        "prefixes of your network's own NAT64, separated by commas (`2001:db8:64::/96`): no webhook is sent to an "
        "address behind one; the well-known prefixes are always refused",
    )

    token_cache: float = _setting(5.0, "seconds the service caches a token; a revoked token may work that long", 0)
    tick_secrets: str = _setting(
        "",
        "secrets of the service's tick endpoint, separated by commas: any one is accepted, so they can be rotated",
        secret=True,
    )
    max_body: int = _setting(8_388_608, "largest body of a request to the service, in bytes", 1024)
    max_connections: int = _setting(
        2000, "connections the service keeps; above that, it closes the longest idle ones without a token", 10
    )
    max_requests: int = _setting(
        1200, "requests the service handles at once, a quarter for one tenant; more are refused with 503 or 429", 4
    )
    header_timeout: float = _setting(10.0, "seconds a client of the service may take to send a request's header", 0.1)
    client_timeout: float = _setting(
        30.0, "seconds a client of the service may take to send a body, and to receive each 64 kB", 0.1
    )

    dashboard: bool = _setting(True, "serve the dashboard beside `/v1`")
    dashboard_header: str = _setting(
        "", "header in which a trusted proxy names the signed-in user, such as `X-Forwarded-User`; empty: tokens only"
    )
    dashboard_proxies: str = _setting(
        "",
        "addresses or networks of trusted proxies, separated by commas: from them `dashboard_header` and "
        "`X-Forwarded-Proto` count",
    )
    dashboard_scopes: str = _setting(
        "jobs:read", "scopes of users that a proxy names, for all tenants, separated by commas"
    )

    test_dsn: str = _setting(
        "", "server on which `holdfast.testing` creates its databases; empty: it starts a private one"
    )
    window: float = _setting(10.0, "seconds of work in one row of `worker_tick_metrics`; 0: workers write none", 0)
    metrics_port: int = _setting(
        0, "port of a worker's Prometheus metrics, or the next free of 16; 0: none; extra `metrics`", 0
    )
    metrics_host: str = _setting("127.0.0.1", "address of that port; `0.0.0.0` is all of the machine's")
    sentry_dsn: str = _setting("", "Sentry DSN for failed attempts, with secrets scrubbed; extra `sentry`", secret=True)
    log_format: str = _setting("console", "worker log lines: `console` or `json`")
    log_level: str = _setting("info", "lowest level logged: debug, info, warning or error")

    def __post_init__(self) -> None:
        object.__setattr__(self, "queues", _joined(self.queues))
        for each in fields(self):
            low, value = each.metadata["low"], getattr(self, each.name)
            _check_type(each.name, str(each.type), value)
            if low is not None and not low <= value < math.inf:
                raise ConfigurationError(f"{each.name} must be at least {low}, got {value!r}; set {_env(each.name)}")
        _check_schema(self.schema)
        if not _WORKER_NAME.fullmatch(self.worker_name):
            raise ConfigurationError(
                f"worker_name {self.worker_name!r} is not usable: use 1 to 60 letters, digits, dots, dashes and "
                "underscores; set HOLDFAST_WORKER_NAME"
            )
        if self.renew * 2 > self.lease:
            raise ConfigurationError(
                f"renew ({self.renew:g} s) must be at most half of lease ({self.lease:g} s), or one slow renewal "
                "loses the lease; lower HOLDFAST_RENEW or raise HOLDFAST_LEASE"
            )
        if self.amqp_enabled and not self.amqp_url.startswith(("amqp://", "amqps://")):
            raise ConfigurationError("amqp_url must begin with amqp:// or amqps://; set HOLDFAST_AMQP_URL")
        if self.amqp_enabled and not (self.amqp_exchange and self.amqp_routing_key):
            raise ConfigurationError(
                "amqp_exchange and amqp_routing_key must not be empty; leave them out for the defaults"
            )
        if self.health_require_amqp and not self.amqp_enabled:
            raise ConfigurationError("health_require_amqp needs amqp_enabled; set HOLDFAST_AMQP_ENABLED")
        for name in ("health_port", "metrics_port"):
            if (port := getattr(self, name)) > HIGHEST_PORT:
                raise ConfigurationError(f"{name} must be a port up to {HIGHEST_PORT}, got {port}; set {_env(name)}")
        _check_networks(self.nat64_prefixes)
        _check_proxies(self.dashboard_header, self.dashboard_proxies)
        if self.log_level.lower() not in ("debug", "info", "warning", "error"):
            raise ConfigurationError(f"log_level must be debug, info, warning or error, got {self.log_level!r}")
        if self.log_format not in ("console", "json"):
            raise ConfigurationError(f"log_format must be 'console' or 'json', got {self.log_format!r}")

    @property
    def queue_list(self) -> list[str]:
        """Return the queues in the order given; ["default"] if there are none."""
        names = [name.strip(BLANKS) for name in self.queues.split(",")]
        return list(dict.fromkeys(filter(None, names))) or ["default"]

    @property
    def database(self) -> tuple[str, str]:
        """Return what identifies a set of Holdfast's tables: the DSN and the schema."""
        return self.dsn, self.schema

    def with_(self, **changes: object) -> Settings:
        """Return a copy with some values changed; None means unchanged."""
        _refuse_unknown(changes)
        return dataclasses.replace(self, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **overrides: object) -> Settings:
        """Return settings from the environment, with overrides from code; None means not given."""
        environ = os.environ if environ is None else environ
        known = {each.name: each for each in fields(cls)}
        values: dict[str, Any] = {k: v for k, v in overrides.items() if v is not None}
        _refuse_unknown(values)
        for name, each in known.items():
            text = environ.get(_env(name))
            if text is not None and text != "" and name not in values:
                values[name] = _parse(name, str(each.type), text)
        return cls(**values)


def _env(name: str) -> str:
    return PREFIX + name.upper()


def other_address(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the variable with a database's address that other programs read and Holdfast does not, if it is set."""
    environ = os.environ if environ is None else environ
    return "DATABASE_URL" if environ.get("DATABASE_URL") else None


def misspelt(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return environment variables that look like a misspelled setting, with the probable name."""
    environ = os.environ if environ is None else environ
    known = [each.name.upper() for each in fields(Settings)]
    found: dict[str, str] = {}
    for name, value in environ.items():
        short = name.removeprefix(PREFIX)
        other = short in known or _NOT_SETTINGS.fullmatch(short) or value.startswith("tcp://")
        if name.startswith(PREFIX) and not other and (near := difflib.get_close_matches(short, known, 1, 0.75)):
            found[name] = PREFIX + near[0]
    return found


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """The socket on which a service manager receives reports, and the seconds after which it restarts a process that is
    silent; 0: never."""

    address: str
    watchdog: float


def service_manager(environ: Mapping[str, str] | None = None) -> ServiceManager | None:
    """Return the service manager that started this process and wants reports, or None."""
    environ = os.environ if environ is None else environ
    address = environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return None
    watched = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    microseconds = environ.get("WATCHDOG_USEC", "")
    watchdog = int(microseconds) / 1e6 if watched and microseconds.isdigit() else 0.0
    return ServiceManager(re.sub("^@", "\0", address), watchdog)


def _refuse_unknown(names: Iterable[str]) -> None:
    if unknown := set(names) - {each.name for each in fields(Settings)}:
        raise ConfigurationError(f"no setting named {sorted(unknown)[0]!r}; see docs/reference/settings.md")


def can_be_served(queue: str) -> bool:
    """Return whether a worker can serve a queue of this name. Settings separate queues by commas, and claims end them
    with a slash. SQL's domain queue_name refuses the same names."""
    return not {"/", ","} & set(queue) and queue == queue.strip(BLANKS)


def _joined(queues: object) -> object:
    """Return the names of queues as one text; code may pass a list."""
    if isinstance(queues, list | tuple) and all(isinstance(name, str) for name in queues):
        if wrong := [name for name in queues if not can_be_served(name)]:
            raise ConfigurationError(
                "a queue's name must not contain a slash or a comma, nor start or end with a space, got "
                f"{wrong[0]!r} in queues"
            )
        return ",".join(queues)
    return queues


def _check_networks(nat64_prefixes: str) -> None:
    for prefix in filter(None, map(str.strip, nat64_prefixes.split(","))):
        try:
            ipaddress.IPv6Network(prefix)
        except ValueError as error:
            raise ConfigurationError(
                f"nat64_prefixes has {prefix!r}, which is not an IPv6 network ({error}); write it like "
                "2001:db8:64::/96; set HOLDFAST_NAT64_PREFIXES"
            ) from None


def _check_proxies(header: str, proxies: str) -> None:
    if header and not proxies:
        raise ConfigurationError(
            f"dashboard_header {header!r} has no effect, because dashboard_proxies is empty; set "
            "HOLDFAST_DASHBOARD_PROXIES to the addresses of the proxies that send it"
        )
    for each in filter(None, map(str.strip, proxies.split(","))):
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise ConfigurationError(
                f"dashboard_proxies has {each!r}, which is no address or network ({error}); write it like 10.0.0.7 or "
                "10.0.0.0/24; set HOLDFAST_DASHBOARD_PROXIES"
            ) from None


def _check_type(name: str, kind: str, value: object) -> None:
    """Check a value from code like one from the environment; a float may be a whole number."""
    expected: tuple[type, ...] = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}[kind]
    if not isinstance(value, expected) or (isinstance(value, bool) and kind != "bool"):
        words = "a str or a list of names" if name == "queues" else f"{'an' if kind == 'int' else 'a'} {kind}"
        raise ConfigurationError(f"{name} must be {words}, got {value!r}")


def _check_schema(name: str) -> None:
    if not _SCHEMA_NAME.fullmatch(name):
        raise ConfigurationError(
            f"schema {name!r} is not usable: use 1 to 40 lower-case letters, digits and underscores, "
            "not starting with a digit"
        )
    if name in ("public", "information_schema") or name.startswith("pg_"):
        raise ConfigurationError(
            f"schema {name!r} is not usable: Holdfast replaces functions and revokes privileges in its schema, "
            "so it needs one of its own; set HOLDFAST_SCHEMA to a name such as holdfast"
        )


def _parse(name: str, kind: str, text: str) -> object:
    try:
        if kind == "bool":
            return {
                "1": True,
                "true": True,
                "yes": True,
                "on": True,
                "0": False,
                "false": False,
                "no": False,
                "off": False,
            }[text.strip().lower()]
        return {"int": int, "float": float, "str": str}[kind](text)
    except (KeyError, ValueError):
        raise ConfigurationError(
            f"{_env(name)} must be {'an' if kind == 'int' else 'a'} {kind}, got {text!r}"
        ) from None


def table() -> str:
    """Return the reference table of all settings, as Markdown."""
    rows = ["| setting | environment | type | default | meaning |", "|---|---|---|---|---|"]
    for each in fields(Settings):
        default = f"`{each.default}`" if each.default != "" else ""
        rows.append(f"| `{each.name}` | `{_env(each.name)}` | {each.type} | {default} | {each.metadata['doc']} |")
    return "\n".join(rows) + "\n"
