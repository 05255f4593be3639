"""Connections: how they are opened, what a fresh one must show, and errors in words people can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DuplicateJob,
    HoldfastError,
    LockTimeout,
    SchemaError,
    UsageError,
)  # fmt: skip
from holdfast.settings import Settings

OLDEST_SERVER = 150000
LOST = (psycopg.OperationalError, psycopg.InterfaceError)
_WRONG_ADDRESS = re.compile(
    r"authentication failed|no password supplied|(database|role) \".*\" does not exist|no pg_hba.conf entry"
    r"|could not translate host name|failed to resolve host"
)
# What a pooler says that we were not told of.
_POOLED = re.compile(r"unsupported startup parameter|prepared statement \"_pg3_\w+\" (already exists|does not exist)")
AGAIN = (pg.SerializationFailure, pg.DeadlockDetected)


def conninfo(settings: Settings, name: str) -> str:
    """The libpq string for these settings; starts the embedded server where the DSN asks for it."""
    dsn = server_dsn(settings)
    extra: dict[str, Any] = {
        "application_name": f"holdfast {name}"[:63],
        "connect_timeout": max(2, round(settings.connect_timeout)),
        "keepalives": 1,
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": int(settings.call_timeout * 1000),
    }
    if not settings.pooler:  # a pooler refuses start-up options
        extra["options"] = f"-c statement_timeout={int(settings.call_timeout * 1000)}"
    try:
        given = conninfo_to_dict(dsn)
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


def make_dsn(params: Mapping[str, Any]) -> str:
    """A DSN of connection parameters; what libpq does not know is another library's, and left out."""
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    return make_conninfo("", **{name: value for name, value in params.items() if name in known and value is not None})


def options(settings: Settings) -> dict[str, Any]:
    """Connection arguments shared by sync and async connections."""
    return {"autocommit": True, "prepare_threshold": None if settings.pooler else 0}


def check_server(version: int) -> None:
    """Refuses servers older than those supported."""
    if version < OLDEST_SERVER:
        raise ConfigurationError(
            f"the server runs PostgreSQL {version // 10000}, but Holdfast needs 15 or newer; upgrade the server"
        )


def check_schema(found: int | None, expected: int, schema: str) -> None:
    """Refuses a schema this release was not written for."""
    if found is None:
        raise SchemaError(f"schema {schema!r} is not set up in this database; run: holdfast migrate")
    if found < expected:
        raise SchemaError(
            f"schema {schema!r} is at version {found}, this release needs {expected}; run: holdfast migrate"
        )
    if found > expected:
        raise SchemaError(
            f"schema {schema!r} is at version {found}, newer than the {expected} this release knows; upgrade holdfast"
        )


def explain(
    error: Exception, settings: Settings, *, known_good: bool = False, where: str | None = None
) -> HoldfastError:
    """A database error as one of ours, saying what failed and what to do. An address that has worked before is not
    wrong because a name server is silent for a moment."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    where = where or hide_password(settings.dsn)
    state = state_of(error)
    facts = getattr(error, "diag", error)  # asyncpg has them on the error itself
    if getattr(facts, "constraint_name", None) == "dedupe_key":
        message = message_of(error)
        return DuplicateJob(message.rpartition("dedupe key ")[2], f"{message}; nothing was enqueued")
    if state in ("42P01", "3F000", "42883", "42704"):
        return SchemaError(f"schema {settings.schema!r} is not set up in {where} ({text}); run: holdfast migrate")
    if state == "42501":
        return ConfigurationError(
            f"the database user may not do this ({text}); grant it a role: "
            f"GRANT {settings.schema}_worker TO <user> (or _enqueue, _reader, _service, _admin)"
        )
    if state.startswith(("22", "23")):
        # In words already, and not about a job.
        ours = getattr(facts, "constraint_name", None) in ("limit", "endpoint", "event", "token")
        return UsageError(
            message_of(error) if ours else f"the database refused the job: {text.partition(' CONTEXT: ')[0]}"
        )
    if not known_good and _WRONG_ADDRESS.search(text):
        return ConfigurationError(f"cannot log in to {where}: {text}; check HOLDFAST_DSN")
    return _try_again(text, where, locked=state == "55P03")


def _try_again(text: str, where: str, *, locked: bool) -> DatabaseUnavailable:
    if locked:
        return LockTimeout(f"another transaction holds what this call needs ({text}); look for one that was left open")
    text = re.sub(r" Is the server running[^?]*\?", "", text)  # libpq asks what we ask, once for each address
    pooled = _POOLED.search(text)
    return DatabaseUnavailable(
        f"a pooler answers at {where}: {text}; set HOLDFAST_POOLER=1"
        if pooled
        else f"the database at {where} cannot be reached or went away: {text}; is it running?"
    )


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
