"""`holdfast migrate`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.next_release import COLOUR, LESS, TERMS, next_release
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


def test_a_plan_shows_steps_and_locks_and_changes_nothing(dsn: str, schema: str, sql: Sql) -> None:
    arguments = ("migrate", "--plan", "--schema", schema)
    assert "is created at version 2, in one transaction" in holdfast(dsn, *arguments).stdout
    assert sql("SELECT to_regnamespace(%s)", [schema]) == [(None,)]
    holdfast(dsn, "migrate", "--schema", schema)
    assert holdfast(dsn, *arguments).stdout == f"schema {schema} is at version 2: nothing to do\n"
    with next_release({"0003_colour.sql": COLOUR, "0004_less.sql": LESS}, {"audit.sql": lambda text: text + "--"}):
        shown = holdfast(dsn, *arguments).stdout
        document = as_json(holdfast(dsn, *arguments, "--json"))
    assert shown.splitlines() == [
        f"schema {schema} is at version 2 and goes to 4",
        "  1. 0003_colour.sql: add the colour",
        "     locks live, later (access exclusive) for at most 5 s a statement",
        "  2. 0003_colour.sql: index live by colour",
        "     locks live (share update exclusive) as long as it runs, outside a transaction: reads and writes continue",
        "  3. replace functions (0) and views (1)",
        "     locks audit (access exclusive) for at most 5 s a statement",
        "  4. 0004_less.sql: drop what schema 1 called",
        "     locks no table",
        "it waits 0.5 s for a lock, then lets others pass and tries again, up to 60 s",
        "processes that know schema 3 or later work meanwhile and afterwards",
    ]
    assert (document["version"], document["to"], document["works_with"]) == (2, 4, 3)
    assert document["steps"][1] == {
        "title": "0003_colour.sql: index live by colour",
        "locks": {"live": "share update exclusive"},
        "at_most": None,
    }
    assert holdfast(dsn, *arguments).stdout.endswith("nothing to do\n")


def test_migrate_goes_to_a_version_and_not_back(dsn: str, schema: str) -> None:
    arguments = ("migrate", "--schema", schema)
    holdfast(dsn, *arguments)
    with next_release(
        {"0003_empty.sql": TERMS.format(1, "no") + "-- Step: nothing\n-- Locks: none\n", "0004_less.sql": LESS}
    ):
        assert "at version 3: applied 0003_empty.sql" in holdfast(dsn, *arguments, "--to", "3").stdout
        assert holdfast(dsn, *arguments, "--to", "3", "--check").exit_code == 0
        assert holdfast(dsn, *arguments, "--check").exit_code == 1
        back = holdfast(dsn, *arguments, "--to", "1")
        assert (back.exit_code, back.stdout) == (2, "") and "going back to 1 would lose what it stores" in back.stderr
    assert holdfast(dsn, *arguments, "--check").exit_code == 0, "an older release has nothing to do"
    assert holdfast(dsn, *arguments).stdout == f"schema {schema} is at version 3: up to date\n"
    assert holdfast(dsn, "doctor", "--schema", schema, "--json").exit_code in (0, 1)
