"""Responses of marketplaces, kept for a while in one SQLite file that all workers of a machine share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from coins.listings import FIELDS, Query


def cache_key(source_id: str, query: Query) -> str:
    """Return source_id|year|mintmark|denomination|series|title."""
    return "|".join([source_id, *("" if query.get(name) is None else str(query[name]) for name in FIELDS)])


class Cache:
    """Each call opens the file: threads and processes need no more than SQLite's own locks."""

    def __init__(self, path: Path, ttl: float, *, enabled: bool = True) -> None:
        self._path, self._ttl, self._enabled = path, ttl, enabled

    def get(self, key: str) -> tuple[str, str] | None:
        """Return the kind and the text of a response that has not expired."""
        if not self._enabled:
            return None
        with self._opened() as db:
            found: tuple[str, str] | None = db.execute(
                "select kind, body from responses where key = ? and stored_at > ?", [key, time.time() - self._ttl]
            ).fetchone()
            return found

    def put(self, key: str, kind: str, body: str) -> None:
        """Store a response in place of an older one, and delete expired ones."""
        if not self._enabled:
            return
        with self._opened() as db:
            db.execute("insert or replace into responses values (?, ?, ?, ?)", [key, kind, body, time.time()])
            db.execute("delete from responses where stored_at <= ?", [time.time() - self._ttl])

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=10)) as db, db:
            db.execute(
                "create table if not exists responses (key text primary key, kind text, body text, stored_at real)"
            )
            yield db
