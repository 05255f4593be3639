"""The SQL files of this release, and what its migrations say of themselves; no database here.

A migration is a numbered file that opens with its terms, and has a heading for each step:

    -- Works with: schema 1 and later      whose processes keep working when it is applied, by their schema number
    -- Needed: yes                         whether processes of this release need it; if "no" they also run without it
    -- Step: add the color                 one transaction; "Step outside a transaction" for concurrent indexes
    -- Locks: live, later (access exclusive)

A release is known by the number of its last migration: its schema number. A migration that works with fewer releases
than those before it is a contract: it removes what only older releases use, so it is applied last, after functions and
views.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

from holdfast.errors import ConfigurationError

_TERM = r"^-- {}: *(.+?) *$"
_WORKS_WITH = re.compile(_TERM.format("Works with"), re.M)
_NEEDED = re.compile(_TERM.format("Needed"), re.M)
_STEP = re.compile(r"^-- Step( outside a transaction)?: *(.+?) *$", re.M)
_LOCKS = re.compile(_TERM.format("Locks"), re.M)
_LOCKED = re.compile(r"([a-z_]+(?:, [a-z_]+)*) \(([a-z ]+)\)")
_COMMENT = re.compile(r"--.*")
_CONCURRENT = re.compile(r"\bconcurrently\b", re.I)
_MADE_INDEX = re.compile(r"\bcreate (?:unique )?index concurrently if not exists ([a-z_0-9]+)", re.I)
# Files whose object exists, with the checksum of the text that was applied.
KNOWN = """
SELECT f.name, f.checksum FROM {schema}.schema_files f
WHERE f.name IN (SELECT 'functions/' || proname || '.sql' FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace)
   OR f.name IN (SELECT 'views/' || relname || '.sql' FROM pg_class WHERE relnamespace = '{schema}'::regnamespace)
"""


class SchemaState(NamedTuple):
    """A database's schema: its version, and the oldest schema number whose processes it works with."""

    version: int | None
    works_with: int | None


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """A part of a migration: one transaction, or one statement outside of one. `locks` has the mode for each table."""

    migration: str
    number: int
    title: str
    text: str
    locks: dict[str, str]
    alone: bool

    @property
    def index(self) -> str | None:
        """Return the name of the index that it creates concurrently."""
        found = _MADE_INDEX.search(self.text)
        return found and found[1]


@dataclass(frozen=True, slots=True)
class Migration:
    """A numbered file: its terms and its steps."""

    name: str
    works_with: int
    needed: bool
    contracts: bool
    steps: tuple[MigrationStep, ...]

    @property
    def number(self) -> int:
        return int(self.name[:4])


def expected_version() -> int:
    """Return the schema version of this release: the number of its last migration."""
    return read_migrations()[-1].number


def oldest_version() -> int:
    """Return the oldest schema that processes of this release work with."""
    return max(each.number for each in read_migrations() if each.needed)


def read_migrations() -> list[Migration]:
    """Return the migrations of this release by number."""
    found: list[Migration] = []
    for name, text in sql_files("migrations"):
        found.append(read_migration(name, text, max((each.works_with for each in found), default=int(name[:4]))))
    return found


def read_migration(name: str, text: str, works_with: int) -> Migration:
    """Return a migration's terms and steps; `works_with` is that of the migrations before it."""
    own = re.fullmatch(r"schema (\d+) and later", _term(_WORKS_WITH, name, text, "Works with: schema N and later"))
    needed = _term(_NEEDED, name, text, "Needed: yes")
    if own is None or needed not in ("yes", "no"):
        raise _broken(name, "its terms are not '-- Works with: schema N and later' and '-- Needed: yes' (or no)")
    if not works_with <= int(own[1]) <= int(name[:4]):
        raise _broken(name, f"it cannot work with schema {own[1]}: those before it work with {works_with} and later")
    contracts = int(own[1]) > works_with
    if contracts and needed == "yes":
        raise _broken(name, "it is a contract, so no release may need it: '-- Needed: no'")
    return Migration(name, int(own[1]), needed == "yes", contracts, tuple(_steps(name, text)))


def _steps(name: str, text: str) -> Iterator[MigrationStep]:
    starts = list(_STEP.finditer(text))
    if not starts:
        raise _broken(name, "it has no '-- Step: ...'")
    ends = [each.start() for each in starts[1:]] + [len(text)]
    for number, (head, end) in enumerate(zip(starts, ends, strict=True), 1):
        body = text[head.end() : end].strip()
        step = MigrationStep(name, number, head[2], body, _locks(name, body), head[1] is not None)
        if problem := _problem(step):
            raise _broken(name, f"step {number} {problem}")
        yield step


def _problem(step: MigrationStep) -> str | None:
    text = _COMMENT.sub("", step.text)
    if bool(_CONCURRENT.search(text)) != step.alone:
        return "must be a '-- Step outside a transaction' if, and only if, it works concurrently"
    if step.alone and not re.search(r"concurrently if (not )?exists", text, re.I):
        return "may be repeated after a crash: write 'concurrently if [not] exists'"
    if step.alone and text.strip().rstrip(";").count(";"):
        return "has several statements, and each needs a step of its own outside a transaction"
    return None


def _locks(name: str, text: str) -> dict[str, str]:
    line = _term(_LOCKS, name, text, "Locks: TABLE, ... (MODE)' or '-- Locks: none")
    if line == "none":
        return {}
    if _LOCKED.sub("", line).strip("; "):
        raise _broken(name, f"'-- Locks: {line}' is not 'none' or 'TABLE, TABLE (MODE); TABLE (MODE)'")
    return {table: mode for tables, mode in _LOCKED.findall(line) for table in tables.split(", ")}


def _term(pattern: re.Pattern[str], name: str, text: str, example: str) -> str:
    found = pattern.search(text)
    if found is None:
        raise _broken(name, f"it lacks '-- {example}'")
    return found[1]


def _broken(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"migration {name} is not complete: {why}")


def in_one_transaction(steps: Sequence[MigrationStep]) -> str:
    """Return the SQL of steps for a new schema, where nothing can be locked for long."""
    return "\n".join(_CONCURRENT.sub("", each.text) if each.alone else each.text for each in steps)


def replaceable() -> dict[str, str]:
    """Return the text of each function and view by its name in schema_files."""
    return {f"{kind}/{name}": text for kind in ("functions", "views") for name, text in sql_files(kind)}


def checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sql_files(kind: str) -> Iterator[tuple[str, str]]:
    """Return the name and text of each file of a kind, by name. Functions are in a folder for each noun."""
    folder = resources.files("holdfast") / "sql" / kind
    entries = [file for entry in folder.iterdir() for file in (entry.iterdir() if entry.is_dir() else [entry])]
    for entry in sorted(entries, key=lambda e: e.name):
        if entry.name.endswith(".sql"):
            yield entry.name, entry.read_text(encoding="utf-8")


def sql_text(name: str) -> str:
    """Return the text of a file beside the folders."""
    return (resources.files("holdfast") / "sql" / name).read_text(encoding="utf-8")
