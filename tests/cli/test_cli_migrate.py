"""`holdfast migrate`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.program import as_json, holdfast

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def schema(sql: Sql) -> Iterator[str]:
    """The name of a schema that does not exist yet."""
    name = f"cli_made_{os.getpid()}"  # its roles belong to the whole server, which other test runs share
    yield name
    sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    for role in ("enqueue", "worker", "reader", "admin"):
        sql(f"DROP ROLE IF EXISTS {name}_{role}")


def test_migrate_sets_up_a_schema_and_then_has_nothing_to_do(dsn: str, schema: str) -> None:
    missing = holdfast(dsn, "migrate", "--check", "--schema", schema)
    assert missing.exit_code == 1
    assert "0001_engine.sql" in missing.stdout
    first = as_json(holdfast(dsn, "migrate", "--json", "--schema", schema))
    assert first["schema"] == schema
    assert first["migrations"][0] == "0001_engine.sql"
    assert "functions/claim.sql" in first["functions"]
    again = holdfast(dsn, "migrate", "--schema", schema)
    assert again.exit_code == 0
    assert again.stdout == f"schema {schema} is at version {first['version']}: up to date\n"


def test_check_names_what_is_missing_and_changes_nothing(dsn: str, schema: str, sql: Sql) -> None:
    result = holdfast(dsn, "migrate", "--check", "--json", "--schema", schema)
    assert result.exit_code == 1
    assert '"up_to_date": false' in result.stdout
    assert sql("SELECT to_regnamespace(%s)", [schema]) == [(None,)]


def test_check_of_a_schema_that_is_up_to_date_succeeds(dsn: str) -> None:
    document = as_json(holdfast(dsn, "migrate", "--check", "--json"))
    assert document["up_to_date"] is True
    assert document["version"] == document["expected"]
    assert (document["migrations"], document["functions"]) == ([], [])


def test_check_notices_a_function_of_another_release(dsn: str, schema: str, sql: Sql) -> None:
    holdfast(dsn, "migrate", "--schema", schema)
    sql(f"UPDATE {schema}.schema_files SET checksum = 'old' WHERE name = 'functions/claim.sql'")
    result = holdfast(dsn, "migrate", "--check", "--json", "--schema", schema)
    assert result.exit_code == 1
    assert "functions/claim.sql" in result.stdout
    assert "functions/finish.sql" not in result.stdout


def test_a_schema_newer_than_this_release_is_refused(dsn: str, schema: str, sql: Sql) -> None:
    holdfast(dsn, "migrate", "--schema", schema)
    sql(f"INSERT INTO {schema}.schema_info VALUES (9999, now())")
    for arguments in (["--check"], []):
        result = holdfast(dsn, "migrate", *arguments, "--schema", schema)
        assert result.exit_code == 2
        assert "upgrade holdfast" in result.stderr
