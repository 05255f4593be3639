"""A later release in this process: its files differ from those of the real one while the block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from holdfast.store import migrations

Change = Callable[[str], str]
TERMS = "-- Works with: schema {} and later\n-- Needed: {}\n"
ADD = (
    "-- Step: add the colour\n-- Locks: live, later (access exclusive)\n"
    "alter table live add colour text; alter table later add colour text;\n"
)
INDEX = (
    "-- Step outside a transaction: index live by colour\n-- Locks: live (share update exclusive)\n"
    "create index concurrently if not exists live_colour on live (colour);\n"
)
COLOUR = TERMS.format(1, "yes") + ADD + INDEX
LESS = TERMS.format(3, "no") + "-- Step: drop what schema 1 called\n-- Locks: none\ndrop function if exists uncle;\n"


@contextmanager
def next_release(added: Mapping[str, str], changed: Mapping[str, Change] | None = None) -> Iterator[None]:
    """Add migrations by name, and change functions and views by name ("why.sql", "jobs.sql"); a file without text is
    gone."""
    real, changes = migrations.sql_files, changed or {}

    def sql_files(kind: str) -> Iterator[tuple[str, str]]:
        texts = {name: changes.get(name, str)(text) for name, text in real(kind)}
        texts |= added if kind == "migrations" else {}
        yield from sorted((name, text) for name, text in texts.items() if text)

    migrations.sql_files = sql_files
    try:
        yield
    finally:
        migrations.sql_files = real
