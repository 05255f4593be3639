"""Schemas that are broken on purpose: a check that passes there proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any

import psycopg

from holdfast import Holdfast
from holdfast.store.migrations import sql_files

Sql = Callable[..., list[tuple[Any, ...]]]
SQL = resources.files("holdfast") / "sql"
NO_TOKEN = {
    "finish": [(" and l.token = g.token", ""), ("token = any (p_tokens) and ", "")],
    "settle": [(" and l.token = g.token", "")],
}


def _source(name: str) -> str:
    if name.startswith("views/"):
        return (SQL / f"{name}.sql").read_text(encoding="utf-8")
    return dict(sql_files("functions"))[f"{name}.sql"]


@contextmanager
def mutant(dsn: str, changes: dict[str, list[tuple[str, str]]]) -> Iterator[Sql]:
    """Make a schema of its own whose functions, or views ("views/NAME"), differ from the real ones by a change of their
    text."""
    with Holdfast(dsn, schema="mutant") as hf:
        hf.migrate()
    # A statement that waits for a lock forever fails, and names the place.
    options = "-c search_path=mutant,pg_temp -c statement_timeout=30s"
    with psycopg.connect(dsn, autocommit=True, options=options) as conn:

        def run(query: str, params: Any = None) -> list[tuple[Any, ...]]:
            cursor = conn.execute(query, params)
            return cursor.fetchall() if cursor.description else []

        try:
            for name, pairs in changes.items():
                text = _source(name)
                for old, new in pairs:
                    assert old in text, f"{name}.sql no longer holds {old!r}: this mutant proves nothing"
                    text = text.replace(old, new)
                conn.execute(text)
            yield run
        finally:
            conn.execute("drop schema mutant cascade")
