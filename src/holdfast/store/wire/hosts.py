"""The servers of one DSN, of which one is the primary, and how long a call waits until one takes calls again.

libpq tries the hosts of a DSN in their order, each for connect_timeout. A host that was lost with its network does not
refuse, so every connection would wait for it first. So the host that was the primary last is tried first, which all
connections of the process share. An operator's target_session_attrs and load_balance_hosts are kept.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

Server = tuple[str, str, str]  # host, hostaddr, port
_LISTS = ("host", "hostaddr", "port")
# Seconds for one server of several: libpq allows no less than 2; more would be spent on one that is cut off.
SHORTEST_CONNECT, LONGEST_CONNECT = 2, 3
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between tries, jittered by a half
# What servers say while the primary changes: of the class of lost connections (08), ended by an administrator, by a
# crash or because the database is away (57P01, 57P02, 57P04, 57P05), starting or stopping (57P03), too many
# connections, as when all clients return at once (53300), and read-only, which a standby is (25006).
_AWAY = frozenset(("57P01", "57P02", "57P03", "57P04", "57P05", "53300", "25006"))

last_primaries: dict[tuple[Server, ...], Server] = {}


def servers(params: Mapping[str, Any]) -> list[Server]:
    """Return the servers of connection parameters, in their order; one where there is no list."""
    columns = [str(params.get(name) or "").split(",") for name in _LISTS]
    number = max(len(columns[0]), len(columns[1]))
    columns = [each * number if len(each) == 1 else each for each in columns]
    if any(len(each) != number for each in columns):
        return [("", "", "")]  # libpq says what is wrong
    return list(zip(*columns, strict=True))


def several(params: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return what connections to several servers need: only the primary will do, and no server may use up the time of
    all. Nothing for one server."""
    number = len(servers(params))
    if number < 2:
        return {"connect_timeout": max(SHORTEST_CONNECT, round(seconds))}
    share = max(SHORTEST_CONNECT, min(LONGEST_CONNECT, round(seconds / number)))
    return {"target_session_attrs": "read-write", "connect_timeout": share}


def primary_first(conninfo: str) -> str:
    """Return the connection string with the last known primary as its first server."""
    params = conninfo_to_dict(conninfo)
    known = tuple(servers(params))
    if (primary := last_primaries.get(known)) is None or primary == known[0]:
        return conninfo
    ordered = [primary, *(each for each in known if each != primary)]
    lists = {name: ",".join(column) for name, column in zip(_LISTS, zip(*ordered, strict=True), strict=True)}
    return make_conninfo(conninfo, **{name: text if text.strip(",") else None for name, text in lists.items()})


def remember(conninfo: str, conn: Any) -> None:
    """Note the server that a new connection has reached."""
    params = conninfo_to_dict(conninfo)
    known = tuple(servers(params))
    if len(known) > 1:
        info = conn.info
        found = [each for each in known if info.host in each[:2] and str(info.port) == (each[2] or "5432")]
        if found:
            last_primaries[known] = found[0]


def is_away(error: BaseException) -> bool:
    """Return whether a database error says that the primary is away or changes, so that waiting may help."""
    state = getattr(error, "sqlstate", None) or ""
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not state
    return lost or state in _AWAY or state.startswith("08")


class Patience:
    """Seconds to wait until a server takes calls again, counted from the first failure, with jittered pauses."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until: float | None = None
        self._pause = FIRST_PAUSE

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return self.seconds if self._until is None else max(0.0, self._until - time.monotonic())

    def pause(self) -> float | None:
        """Return the seconds to wait before the next try; None if there is no time for one."""
        if self._until is None:
            self._until = time.monotonic() + self.seconds
        pause = self._pause * random.uniform(0.5, 1.5)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return pause if pause < self.left else None
