"""Connections: their parameters, the checks of a new one, and database errors that say what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import pq
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import JsonbLoader, JsonLoader

from holdfast.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DuplicateJob,
    HoldfastError,
    InvalidPayload,
    LockTimeout,
    SchemaError,
    UsageError,
)
from holdfast.model import payload
from holdfast.settings import Settings, other_address
from holdfast.store.migrations import SchemaState, expected_version, oldest_version
from holdfast.store.wire import hosts
from holdfast.store.wire.deadline import Overdue, StalePlan, TooManyAbandoned

OLDEST_SERVER = 150000
DEEPEST = 400  # levels of JSON that are decoded; Python's recursion limit is 1,000 for the whole stack
# A connection that is of no use any more. Read-only is one to a standby: the primary is elsewhere.
LOST = (psycopg.OperationalError, psycopg.InterfaceError, pg.ReadOnlySqlTransaction)
_WRONG_ADDRESS = re.compile(
    r"authentication failed|no password supplied|(database|role) \".*\" does not exist|no pg_hba.conf entry"
    r"|could not translate host name|failed to resolve host"
)
# Errors of a pooler when HOLDFAST_POOLER is not set.
_POOLED = re.compile(
    r"unsupported startup parameter|prepared statement \"(_pg3|holdfast)_\w+\" (already exists|does not exist)"
)
AGAIN = (pg.SerializationFailure, pg.DeadlockDetected, StalePlan)
# Overrides for settings of a server, database or role that would break our own calls, or slow them down: to compile a
# short query takes longer than to run it. On a connection lent to a handler the latter stay as they are, because its
# transactions are the application's.
_EVERYWHERE = ("datestyle=ISO",)
_OWN_CALLS = (r"default_transaction_isolation=read\ committed", "lock_timeout=0", "jit=off")

# A host that vanishes sends nothing, so its connections are given up after SILENCE seconds without a sign of its
# kernel. A slow call is no silence: the kernel acknowledges it.
SILENCE = 10.0
_KEEPALIVES = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
_NO_PRIMARY = re.compile(r"session is read-only|server is in hot standby mode")

_WHERE = re.compile(r" (?:CONTEXT|QUERY|LINE \d+): ")  # a place in our own functions: of no use to callers
# Problems of a running server by SQLSTATE: what is wrong, and what to do.
_TROUBLES = {
    "53100": ("has no space left on its disk", "free space there, then try again"),
    "53200": ("is out of memory", "give it more, or lower work_mem or max_connections"),
    "53300": ("has no free connection", "raise max_connections, or lower HOLDFAST_POOL_SIZE"),
    "57014": ("has canceled the call", "an operator or a server setting did this; try again"),
    "25006": ("is read-only", "is it a standby? else look at default_transaction_read_only"),
    "57P01": ("ended the connection", "is it being stopped or restarted? try again"),
    "57P02": ("ended the connection because another backend crashed", "see its log; try again"),
    "57P03": ("does not take connections now", "try again when it has started"),
    "58030": ("cannot read or write its files", "look at its disk and its log"),
}


def conninfo(settings: Settings, name: str, *, lent: bool = False) -> str:
    """Return the libpq string for these settings; start the embedded server if the DSN names one."""
    dsn = server_dsn(settings)
    extra: dict[str, Any] = {
        "application_name": f"holdfast {name}"[:63],
        "client_encoding": "UTF8",
        **_KEEPALIVES,
        "tcp_user_timeout": int(min(settings.call_timeout, SILENCE) * 1000),
    }
    if not settings.pooler:  # a pooler refuses startup options
        wanted = (f"statement_timeout={int(settings.call_timeout * 1000)}", *_EVERYWHERE, *(() if lent else _OWN_CALLS))
        extra["options"] = " ".join(f"-c {each}" for each in wanted)
    try:
        params = conninfo_to_dict(dsn)
        extra |= hosts.several(params, settings.connect_timeout)
        params.pop("client_encoding", None)  # payloads are UTF-8, so the DSN must not choose another encoding
        extra["options"] = " ".join(filter(None, [str(params.get("options") or ""), extra.get("options")]))
        return make_conninfo(dsn, **{k: v for k, v in extra.items() if v and (k == "options" or k not in params)})
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            f"HOLDFAST_DSN {hide_password(dsn)!r} is not a PostgreSQL address ({str(error).strip()}); write it as "
            "postgresql://USER@HOST:PORT/DATABASE or embedded:PATH"
        ) from None


def server_dsn(settings: Settings) -> str:
    """Return the server's DSN; start the embedded server if necessary."""
    if not settings.dsn:
        other = other_address()
        unread = f'; {other} is set, but not read: pass --dsn "${other}", or Holdfast(dsn) in code' if other else ""
        raise ConfigurationError(
            "no database: set HOLDFAST_DSN to postgresql://USER@HOST:PORT/DATABASE, or to embedded:./.holdfast to "
            f"start a PostgreSQL of Holdfast's own{unread}"
        )
    if settings.dsn.startswith("embedded:"):
        from holdfast.store.dev.embedded import open_embedded  # needs Unix

        return open_embedded(settings.dsn).start()
    return settings.dsn


def same_database(one: str, other: str) -> bool:
    """Return whether two DSNs name the same database, whatever their notation and user. Of several servers with one
    database, which a failover makes the primary in turn, one in common is enough."""
    try:
        (servers, name), (others, other_name) = _database_of(one), _database_of(other)
        return name == other_name and not servers.isdisjoint(others)
    except (psycopg.ProgrammingError, ConfigurationError):
        return one == other


def _database_of(dsn: str) -> tuple[frozenset[tuple[str, str]], str]:
    if dsn.startswith("embedded:"):
        from holdfast.store.dev.embedded import EmbeddedPostgres, parse_embedded  # needs Unix

        if (path := parse_embedded(dsn)) is not None:
            dsn = EmbeddedPostgres(path).dsn()
    params = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value}
    found = frozenset((_address(host, hostaddr), port or "5432") for host, hostaddr, port in hosts.servers(params))
    return found, params.get("dbname") or params.get("user", "")


def _address(host: str, hostaddr: str) -> str:
    return "127.0.0.1" if (address := hostaddr or host) == "localhost" else address


def make_dsn(params: Mapping[str, Any]) -> str:
    """Return a DSN of connection parameters, without those of other libraries."""
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    return make_conninfo("", **{name: value for name, value in params.items() if name in known and value is not None})


def options(settings: Settings) -> dict[str, Any]:
    """Return connection arguments shared by sync and async connections."""
    return {"autocommit": True, "prepare_threshold": None if settings.pooler else 0, "context": _Readable}


def read_json(data: bytes | str) -> Any:
    """Return decoded JSON, or {"unreadable": reason} if Python cannot decode it.

    Jobs inserted by SQL bypass the client's checks. One row that is nested too deeply, or has a number with too many
    digits, must not break a whole list. (The domain readable_json refuses text that cannot be decoded.)
    """
    raw = data.encode() if isinstance(data, str) else data
    try:
        payload.check_limits(raw, "this JSON", len(raw), DEEPEST)
        return json.loads(raw)
    except (InvalidPayload, ValueError, RecursionError) as error:
        return {"unreadable": str(error)}


class _JsonLoader(JsonLoader):
    _loads = staticmethod(read_json)


class _JsonbLoader(JsonbLoader):
    _loads = staticmethod(read_json)


class _Readable:
    """The adaptation context of our connections."""

    connection = None
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("json", _JsonLoader)
    adapters.register_loader("jsonb", _JsonbLoader)


def check_server(version: int) -> None:
    """Raise ConfigurationError for an unsupported server version."""
    if version < OLDEST_SERVER:
        raise ConfigurationError(
            f"the server runs PostgreSQL {version // 10000}, but Holdfast needs 15 or newer; upgrade the server"
        )


def check_schema(
    found: SchemaState, schema: str, database: tuple[str, str] | None = None, *, oldest: int | None = None
) -> None:
    """Raise SchemaError unless this release works with the schema, and the schema with this release."""
    known = expected_version()
    oldest = oldest_version() if oldest is None else oldest
    if found.version is None or found.works_with is None:
        where = hide_password(database[0]) if database else "this database"
        raise SchemaError(f"schema {schema!r} is not set up in {where}; run: holdfast migrate", database)
    if found.version < oldest:
        raise SchemaError(
            f"schema {schema!r} is at version {found.version}, this release needs {oldest}; run: holdfast migrate",
            database,
        )
    if found.works_with > known:
        raise SchemaError(
            f"schema {schema!r} is at version {found.version}, newer than the {known} this release knows, and works "
            f"with {found.works_with} and later only; upgrade holdfast",
            database,
        )


def may_change(info: str, error: Exception, known_good: bool) -> bool:
    """Return whether a first connection may succeed soon: the server is starting or a standby, or another of several
    will be the primary. One server that refuses is more likely a wrong address."""
    text = str(error)
    if not known_good and _WRONG_ADDRESS.search(text):
        return False
    starting = re.search(r"the database system is (starting up|not yet accepting|in recovery|shutting down)", text)
    several = len(hosts.servers(conninfo_to_dict(info))) > 1
    return hosts.is_away(error) and (known_good or several or bool(starting) or state_of(error) != "")


def explain(
    error: Exception, settings: Settings, *, known_good: bool = False, where: str | None = None
) -> HoldfastError:
    """Return a database error as one of ours, which says what failed and what to do. With `known_good`, the address has
    worked before, so a failed name lookup is not reported as a wrong address."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    brief = _WHERE.split(text)[0]
    database = settings.database if where is None else None
    where = where or hide_password(settings.dsn)
    state = state_of(error)
    facts = getattr(error, "diag", error)  # asyncpg keeps these fields on the error
    if getattr(facts, "constraint_name", None) == "dedupe_key":
        message = message_of(error)
        return DuplicateJob(message.rpartition("dedupe key ")[2], f"{message}; nothing was enqueued")
    if state in ("42P01", "3F000", "42883", "42703", "42704"):
        return SchemaError(
            f"schema {settings.schema!r} is not set up in {where} for this release of holdfast ({brief}); "
            "run: holdfast migrate, or upgrade holdfast here; HOLDFAST_SCHEMA names another schema",
            database,
        )
    if state == "42501":
        return ConfigurationError(
            f"the database user may not do this ({brief}); do it as the schema's owner, or grant the user a role: "
            f"GRANT {settings.schema}_worker TO <user> (or _enqueue, _reader, _service, _admin)"
        )
    if state.startswith(("22", "23")):
        return _explain_refusal(error, state, getattr(facts, "constraint_name", None), text)
    if not known_good and _WRONG_ADDRESS.search(text):
        return ConfigurationError(f"cannot log in to {where}: {text}; check HOLDFAST_DSN")
    return _explain_trouble(error, state, brief, where, settings.call_timeout)


def _explain_trouble(error: Exception, state: str, text: str, where: str, seconds: float) -> DatabaseUnavailable:
    """Return the error for a failure after which the same call may succeed later."""
    if state == "55P03":
        return LockTimeout(f"another transaction holds what this call needs ({text}); look for one that was left open")
    limit = f"call_timeout is {seconds:g} s; raise HOLDFAST_CALL_TIMEOUT if the server needs longer"
    if _POOLED.search(text):
        why = f"is behind a pooler: {text}; set HOLDFAST_POOLER=1"
    elif isinstance(error, Overdue):
        why = f"did not reply in time ({text}), so the connection was closed; the call may still take effect; {limit}"
    elif isinstance(error, TooManyAbandoned):
        why = f"is held up: {text}"
    elif state == "57014" and "statement timeout" in text:
        why = f"ended a call that took too long ({text}); {limit}"
    elif not state and _NO_PRIMARY.search(text):
        why = f"has no primary that takes writes: {text}; is a failover under way? else look at target_session_attrs"
    elif state in _TROUBLES:
        words, remedy = _TROUBLES[state]
        why = f"{words}: {text}; {remedy}"
    elif state:  # the server replied, so it runs
        why = f"failed: {text} (SQLSTATE {state})"
    else:
        reason = re.sub(r" Is the server running[^?]*\?", "", text)  # libpq repeats it for each address
        why = f"cannot be reached or went away: {reason}; is it running?"
    return DatabaseUnavailable(f"the database at {where} {why}")


def _explain_refusal(error: Exception, state: str, constraint: str | None, text: str) -> HoldfastError:
    if state == "23514" and not constraint:  # a partition's constraint; those of types and tables have names
        return DatabaseUnavailable(f"a partition of history was made meanwhile ({message_of(error)}); repeat the call")
    if constraint in (
        "action",
        "limit",
        "endpoint",
        "event",
        "token",
        "worker",
    ):  # the message is complete, and not about a job
        return UsageError(message_of(error))
    return UsageError(f"the database refused the job: {text.partition(' CONTEXT: ')[0]}")


def message_of(error: Exception) -> str:
    """Return the first line of the server's message."""
    facts = getattr(error, "diag", error)  # asyncpg keeps these fields on the error
    return str(getattr(facts, "message_primary", None) or getattr(facts, "message", error))


def explain_callers(error: Exception, settings: Settings) -> Exception:
    """Return what to raise for an error on the caller's connection: our error if it is about the job, the original if
    it is about the connection or the transaction."""
    source = source_of(error)
    if source is None:
        return error
    explained = explain(source, settings, known_good=True, where="the connection's database")
    return error if isinstance(explained, DatabaseUnavailable) else explained


def source_of(error: BaseException) -> Exception | None:
    """Return the driver's error below one of SQLAlchemy or Django; None if the server did not send one."""
    found = None
    below: BaseException | None = error
    while isinstance(below, Exception):
        found = below if state_of(below) else found
        below = getattr(below, "orig", None) or below.__cause__
    return found


def state_of(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""


def hide_password(dsn: str) -> str:
    """Return the DSN with its password masked."""
    dsn = re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|(?:[^\s&\\]|\\.)+)", r"\1***", dsn)
    return re.sub(r"(//[^:/@?]*:)[^@]*@", r"\1***@", dsn)
