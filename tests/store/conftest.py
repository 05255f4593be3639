"""A database without Holdfast, for tests that migrate it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import DATABASE, drop_database


@pytest.fixture
def empty(pg18: str) -> Iterator[str]:
    """A database without Holdfast."""
    name = f"{DATABASE}_empty"
    drop_database(pg18, name)
    with psycopg.connect(pg18, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    yield psycopg.conninfo.make_conninfo(pg18, dbname=name)
    drop_database(pg18, name)
