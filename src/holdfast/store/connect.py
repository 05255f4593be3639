"""Connections: how they are opened, what a fresh one must show, and errors in words people can act on."""

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
)  # fmt: skip
from holdfast.model import payload
from holdfast.settings import Settings
from holdfast.store.deadline import Overdue, TooManyAbandoned

OLDEST_SERVER = 150000
DEEPEST = 400  # levels of JSON that are decoded: Python's own limit is 1,000, and others are on the stack
LOST = (psycopg.OperationalError, psycopg.InterfaceError)
_WRONG_ADDRESS = re.compile(
    r"authentication failed|no password supplied|(database|role) \".*\" does not exist|no pg_hba.conf entry"
    r"|could not translate host name|failed to resolve host"
)
# What a pooler says that we were not told of.
_POOLED = re.compile(r"unsupported startup parameter|prepared statement \"_pg3_\w+\" (already exists|does not exist)")
AGAIN = (pg.SerializationFailure, pg.DeadlockDetected)
# Settings of a server, database or role that would break our own calls. A connection that is lent to a handler keeps
# the last two: the handler's transactions are the application's.
_EVERYWHERE = ("datestyle=ISO",)
_OWN_CALLS = (r"default_transaction_isolation=read\ committed", "lock_timeout=0")

# What a server that runs may lack or be busy with, by SQLSTATE: what is wrong, and what to do.
_WHERE = re.compile(r" (?:CONTEXT|QUERY|LINE \d+): ")  # where in our own functions: of no use to callers
_TROUBLES = {
    "53100": ("has no space left on its disk", "free space there, then try again"),
    "53200": ("is out of memory", "give it more, or lower work_mem or max_connections"),
    "53300": ("has no free connection", "raise max_connections, or lower HOLDFAST_POOL_SIZE"),
    "57014": ("has canceled the call", "an operator or a setting of the server's did; try again"),
    "25006": ("is read-only", "is it a standby? else look at default_transaction_read_only"),
    "57P01": ("ended the connection", "is it being stopped or restarted? try again"),
    "57P02": ("ended the connection because another backend crashed", "see its log; try again"),
    "57P03": ("does not take connections now", "try again when it has started"),
    "58030": ("cannot read or write its files", "look at its disk and its log"),
}


def conninfo(settings: Settings, name: str, *, lent: bool = False) -> str:
    """The libpq string for these settings; starts the embedded server where the DSN asks for it."""
    dsn = server_dsn(settings)
    extra: dict[str, Any] = {
        "application_name": f"holdfast {name}"[:63],
        "client_encoding": "UTF8",
        "connect_timeout": max(2, round(settings.connect_timeout)),
        "keepalives": 1,
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": int(settings.call_timeout * 1000),
    }
    if not settings.pooler:  # a pooler refuses start-up options
        wanted = (f"statement_timeout={int(settings.call_timeout * 1000)}", *_EVERYWHERE, *(() if lent else _OWN_CALLS))
        extra["options"] = " ".join(f"-c {each}" for each in wanted)
    try:
        given = conninfo_to_dict(dsn)
        given.pop("client_encoding", None)  # payloads are UTF-8, whatever the address or the environment says
        extra["options"] = " ".join(filter(None, [str(given.get("options") or ""), extra.get("options")]))
        return make_conninfo(dsn, **{k: v for k, v in extra.items() if v and (k == "options" or k not in given)})
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            f"HOLDFAST_DSN {hide_password(dsn)!r} is not a PostgreSQL address ({str(error).strip()}); write it as "
            "postgresql://USER@HOST:PORT/DATABASE or embedded:PATH"
        ) from None


def server_dsn(settings: Settings) -> str:
    """The address of the server, once it runs."""
    if not settings.dsn:
        raise ConfigurationError(
            "no database: set HOLDFAST_DSN to postgresql://USER@HOST:PORT/DATABASE, or to embedded:./.holdfast to "
            "start a PostgreSQL of Holdfast's own"
        )
    if settings.dsn.startswith("embedded:"):
        from holdfast.store.embedded import open_embedded  # needs a Unix; a server of the user's does not

        return open_embedded(settings.dsn).start()
    return settings.dsn


def same_database(one: str, other: str) -> bool:
    """Whether two DSNs lead to the same database, whichever way they are written and whoever logs in."""
    try:
        return _database_of(one) == _database_of(other)
    except (psycopg.ProgrammingError, ConfigurationError):
        return one == other


def _database_of(dsn: str) -> tuple[str, str, str]:
    if dsn.startswith("embedded:"):
        from holdfast.store.embedded import EmbeddedPostgres, parse_embedded  # needs a Unix

        if (path := parse_embedded(dsn)) is not None:
            dsn = EmbeddedPostgres(path).dsn()
    given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value}
    host = given.get("hostaddr") or given.get("host", "")
    host = "127.0.0.1" if host == "localhost" else host
    return host, given.get("port", "5432"), given.get("dbname") or given.get("user", "")


def make_dsn(params: Mapping[str, Any]) -> str:
    """A DSN of connection parameters; what libpq does not know is another library's, and left out."""
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    return make_conninfo("", **{name: value for name, value in params.items() if name in known and value is not None})


def options(settings: Settings) -> dict[str, Any]:
    """Connection arguments shared by sync and async connections."""
    return {"autocommit": True, "prepare_threshold": None if settings.pooler else 0, "context": _Readable}


def read_json(data: bytes | str) -> Any:
    """Return what JSON from the database holds, or, for what Python cannot decode, an object that says why.

    Jobs may be inserted without the client, whose checks they then never met. One row that is nested too deep, or has a
    number of too many digits, must not break a list for everybody. (Text that cannot be decoded is refused by the
    domain readable_json.)
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
    """The context of our connections: how values of PostgreSQL become those of Python."""

    connection = None
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("json", _JsonLoader)
    adapters.register_loader("jsonb", _JsonbLoader)


def check_server(version: int) -> None:
    """Refuses servers older than those supported."""
    if version < OLDEST_SERVER:
        raise ConfigurationError(
            f"the server runs PostgreSQL {version // 10000}, but Holdfast needs 15 or newer; upgrade the server"
        )


def check_schema(found: int | None, expected: int, schema: str, database: tuple[str, str] | None = None) -> None:
    """Refuses a schema this release was not written for."""
    if found is None:
        where = hide_password(database[0]) if database else "this database"
        raise SchemaError(f"schema {schema!r} is not set up in {where}; run: holdfast migrate", database)
    if found < expected:
        raise SchemaError(
            f"schema {schema!r} is at version {found}, this release needs {expected}; run: holdfast migrate", database
        )
    if found > expected:
        raise SchemaError(
            f"schema {schema!r} is at version {found}, newer than the {expected} this release knows; upgrade holdfast",
            database,
        )


def explain(
    error: Exception, settings: Settings, *, known_good: bool = False, where: str | None = None
) -> HoldfastError:
    """A database error as one of ours, saying what failed and what to do. An address that has worked before is not
    wrong because a name server is silent for a moment."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    brief = _WHERE.split(text)[0]
    database = settings.database if where is None else None
    where = where or hide_password(settings.dsn)
    state = state_of(error)
    facts = getattr(error, "diag", error)  # asyncpg has them on the error itself
    if getattr(facts, "constraint_name", None) == "dedupe_key":
        message = message_of(error)
        return DuplicateJob(message.rpartition("dedupe key ")[2], f"{message}; nothing was enqueued")
    if state in ("42P01", "3F000", "42883", "42703", "42704"):
        return SchemaError(
            f"schema {settings.schema!r} is not set up in {where} for this release of holdfast ({brief}); "
            "run: holdfast migrate, or upgrade holdfast here",
            database,
        )
    if state == "42501":
        return ConfigurationError(
            f"the database user may not do this ({brief}); grant it a role: "
            f"GRANT {settings.schema}_worker TO <user> (or _enqueue, _reader, _service, _admin)"
        )
    if state.startswith(("22", "23")):
        return _explain_refusal(error, state, getattr(facts, "constraint_name", None), text)
    if not known_good and _WRONG_ADDRESS.search(text):
        return ConfigurationError(f"cannot log in to {where}: {text}; check HOLDFAST_DSN")
    return _explain_trouble(error, state, brief, where, settings.call_timeout)


def _explain_trouble(error: Exception, state: str, text: str, where: str, seconds: float) -> DatabaseUnavailable:
    """Say what keeps the database from doing its work: the same call may succeed later."""
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
    elif state in _TROUBLES:
        words, remedy = _TROUBLES[state]
        why = f"{words}: {text}; {remedy}"
    elif state:  # it has replied, so it runs
        why = f"could not do this: {text} (SQLSTATE {state})"
    else:
        asked = re.sub(r" Is the server running[^?]*\?", "", text)  # libpq asks what we ask, once for each address
        why = f"cannot be reached or went away: {asked}; is it running?"
    return DatabaseUnavailable(f"the database at {where} {why}")


def _explain_refusal(error: Exception, state: str, constraint: str | None, text: str) -> HoldfastError:
    if state == "23514" and not constraint:  # of a partition: those of types and tables have names
        return DatabaseUnavailable(f"a partition of history was made meanwhile ({message_of(error)}); repeat the call")
    if constraint in ("limit", "endpoint", "event", "token"):  # in words already, and not about a job
        return UsageError(message_of(error))
    return UsageError(f"the database refused the job: {text.partition(' CONTEXT: ')[0]}")


def message_of(error: Exception) -> str:
    """What the server said, in its first line."""
    facts = getattr(error, "diag", error)  # asyncpg has them on the error itself
    return str(getattr(facts, "message_primary", None) or getattr(facts, "message", error))


def explain_callers(error: Exception, settings: Settings) -> Exception:
    """The same on a connection of the caller's: what is about the job in our words; what is about the connection or
    the transaction stays as it is, for the caller's own handling."""
    source = source_of(error)
    if source is None:
        return error
    told = explain(source, settings, known_good=True, where="the connection's database")
    return error if isinstance(told, DatabaseUnavailable) else told


def source_of(error: BaseException) -> Exception | None:
    """The driver's error at the bottom of what SQLAlchemy or Django raised; None when the server did not send one."""
    found = None
    below: BaseException | None = error
    while isinstance(below, Exception):
        found = below if state_of(below) else found
        below = getattr(below, "orig", None) or below.__cause__
    return found


def state_of(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""


def hide_password(dsn: str) -> str:
    """A DSN that may be shown."""
    return re.sub(r"(//[^:/@]*:)[^@]*@", r"\1***@", re.sub(r"(password=)\S+", r"\1***", dsn))
