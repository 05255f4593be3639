"""What migrations say of themselves."""

from __future__ import annotations

import pytest

from holdfast import ConfigurationError
from holdfast.store import migrations
from tests.support.next_release import ADD, COLOUR, INDEX, LESS, TERMS


def test_a_migration_states_its_terms_and_its_steps() -> None:
    found = migrations.read_migration("0002_colour.sql", COLOUR, 1)
    assert (found.number, found.works_with, found.needed, found.contracts) == (2, 1, True, False)
    add, index = found.steps
    assert (add.title, add.locks, add.alone) == (
        "add the colour",
        {"live": "access exclusive", "later": "access exclusive"},
        False,
    )
    assert (index.title, index.alone, index.index) == ("index live by colour", True, "live_colour")


def test_a_migration_that_works_with_fewer_releases_is_a_contract() -> None:
    assert migrations.read_migration("0003_less.sql", LESS, 1).contracts
    assert not migrations.read_migration("0003_less.sql", LESS, 3).contracts


def test_the_migrations_of_this_release_are_complete() -> None:
    found = migrations.read_migrations()
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    assert 1 <= migrations.oldest_version() <= migrations.expected_version() == len(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ADD, "lacks '-- Works with"),
        (TERMS.format("two", "yes") + ADD, "its terms"),
        (TERMS.format(1, "perhaps") + ADD, "its terms"),
        (TERMS.format(4, "no") + ADD, "cannot work with schema 4"),
        (TERMS.format(1, "yes"), "no '-- Step"),
        (TERMS.format(2, "yes") + ADD, "it is a contract"),
        (TERMS.format(1, "yes") + ADD.replace("-- Locks", "-- Blocks"), "lacks '-- Locks"),
        (TERMS.format(1, "yes") + ADD.replace("(access exclusive)", "for long"), "is not 'none' or"),
        (TERMS.format(1, "yes") + INDEX.replace(" outside a transaction", ""), "works concurrently"),
        (TERMS.format(1, "yes") + ADD.replace("-- Step:", "-- Step outside a transaction:"), "works concurrently"),
        (TERMS.format(1, "yes") + INDEX.replace("if not exists ", ""), "repeated after a crash"),
        (TERMS.format(1, "yes") + INDEX + "select 1;", "several statements"),
    ],
)
def test_a_migration_that_does_not_say_what_it_does_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"migration 0002_x.sql is not complete: .*{problem}"):
        migrations.read_migration("0002_x.sql", text, 1)
