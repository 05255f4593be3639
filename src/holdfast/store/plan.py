"""What a migration would do: the steps that are missing, in their order, and the functions and views that differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import UsageError
from holdfast.store.call import Rows
from holdfast.store.migrations import (
    KNOWN,
    Migration,
    MigrationStep,
    SchemaState,
    checksum,
    expected_version,
    oldest_version,
    read_migrations,
    replaceable,
)

FOUND = (
    "SELECT max(version) FILTER (WHERE applied_at IS NOT NULL), max(coalesce(works_with, version)) FROM {}.schema_info"
)
HOLD = 5.0  # seconds that a statement may hold its locks in a schema that is in use
Fetch = Callable[[str], Rows]


@dataclass(frozen=True, slots=True)
class PlanPart:
    """What `migrate --plan` shows of a transaction, or of a statement outside of one. `at_most`: seconds for which a
    statement holds locks; None: as long as it runs, which blocks neither reads nor writes."""

    title: str
    locks: dict[str, str]
    at_most: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The migrations that are missing up to `to`, how many steps of each are done, and the files that differ."""

    found: SchemaState
    to: int
    missing: tuple[Migration, ...]
    done: dict[int, int]
    functions: list[str]

    @property
    def expected(self) -> int:
        return expected_version()

    @property
    def migrations(self) -> list[str]:
        return [each.name for each in self.missing]

    @property
    def up_to_date(self) -> bool:
        return self.found.version is not None and not self.missing and not self.functions

    def steps(self, *, contracts: bool) -> list[MigrationStep]:
        """Return the steps that are left: those of contracts come after functions and views."""
        chosen = [each for each in self.missing if each.contracts == contracts]
        return [step for each in chosen for step in each.steps[self.done.get(each.number, 0) :]]

    @property
    def works_with(self) -> int:
        """Return the oldest schema number whose processes will work with the schema."""
        return max([self.found.works_with or 0, *(each.works_with for each in self.missing)])

    def parts(self) -> list[PlanPart]:
        """Return what would happen, in order, and what each part locks."""
        added, removed = ([_part(each) for each in self.steps(contracts=which)] for which in (False, True))
        views = [each.removeprefix("views/").removesuffix(".sql") for each in self.functions if "views/" in each]
        functions = len(self.functions) - len(views)
        title = f"replace functions ({functions}) and views ({len(views)})"
        # A function with other parameters has all views recreated; only the attempt shows whether there is one.
        views = ["all views"] if functions else views
        replaced = [PlanPart(title, dict.fromkeys(views, "access exclusive"), HOLD)] if self.functions else []
        return [*added, *replaced, *removed]


def _part(step: MigrationStep) -> PlanPart:
    return PlanPart(f"{step.migration}: {step.title}", step.locks, None if step.alone else HOLD)


def make_plan(fetch: Fetch, schema: str, to: int | None = None) -> Plan:
    """Compare a database's schema with this release's files, without changes or locks."""
    found = find_version(fetch, schema)
    rows: Rows = []
    known: dict[str, str] = {}
    if found.version is not None:
        rows = fetch(f"SELECT version, steps, applied_at IS NOT NULL FROM {schema}.schema_info")
        known = dict(fetch(KNOWN.format(schema=schema)))
    target = _target(found, to)
    if (found.version or 0) > expected_version():  # functions and views are those of a later release
        return Plan(found, target, (), {}, [])
    applied = {version for version, _, is_applied in rows if is_applied}
    missing = tuple(each for each in read_migrations() if each.number <= target and each.number not in applied)
    differ = [name for name, text in replaceable().items() if known.get(name) != checksum(text)]
    return Plan(found, target, missing, {version: steps for version, steps, _ in rows}, differ)


def find_version(fetch: Fetch, schema: str) -> SchemaState:
    """Return the version of a database's schema, and the oldest that it works with."""
    if not fetch(f"SELECT to_regclass('{schema}.schema_info') IS NOT NULL")[0][0]:
        return SchemaState(None, None)
    return SchemaState(*fetch(FOUND.format(schema))[0])


def _target(found: SchemaState, to: int | None) -> int:
    """Return the version to migrate to; refuse one that would lose data, or that this release cannot use."""
    newest, at = expected_version(), found.version or 0
    if to is None:
        return max(newest, at)
    if to < at:
        raise UsageError(
            f"the schema is at version {at}, and going back to {to} would lose what it stores; processes that know "
            f"schema {found.works_with} or later work with it as it is, so an earlier release needs no other schema"
        )
    if to > max(newest, at):
        raise UsageError(f"this release knows schema versions up to {newest}, not {to}; upgrade holdfast")
    if to < oldest_version():
        raise UsageError(f"this release needs schema {oldest_version()} or later, not {to}")
    return to
