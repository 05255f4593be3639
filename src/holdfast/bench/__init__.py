"""`holdfast bench`: the speed of Holdfast on this machine, relative to the bare SQL limit measured in the same run.

Five workloads, in less than a minute. The long suites are in the repository: `python -m bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast.errors import UsageError, hint
from holdfast.settings import Settings
from holdfast.store.wire import connect

if TYPE_CHECKING:
    from holdfast.bench.report import Report

QUICK = 0.2  # of the jobs of the long suites


def run(
    settings: Settings,
    *,
    workloads: Sequence[str] | None = None,
    scale: float = 1.0,
    json: bool = False,
    known: Mapping[str, Callable[[Any], Any]] | None = None,
) -> int:
    """Run workloads and print one line each. Return the exit code. Without `known`, run the five quick ones."""
    from holdfast.bench import report
    from holdfast.bench.workloads import ALL

    if known is None:
        known, scale = ALL, scale * QUICK
    chosen = list(workloads or known)
    for name in chosen:
        _require(name, known)
    settings = _own_schema(settings)
    try:
        return _measure(
            settings, {name: known[name] for name in chosen}, scale, report.Report(json=json, workloads=len(chosen))
        )
    except psycopg.Error as error:
        raise connect.explain(error, settings) from error


def _measure(settings: Settings, chosen: Mapping[str, Callable[[Any], Any]], scale: float, shown: Report) -> int:
    from holdfast.bench import harness

    bench, problems = harness.Bench(settings, scale), 0
    for name, workload in chosen.items():
        explanation = (workload.__doc__ or "").partition("\n")[0]
        with shown.measuring(name, explanation) as bench.report:
            result = workload(bench)
        shown.show(result, explanation)
        problems += len(result.problems)
    return 1 if problems else 0


def _require(name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        names = ", ".join(known)
        raise UsageError(f"no workload named {name!r}{hint(name, known, f'; known: {names}')}")


def _own_schema(settings: Settings) -> Settings:
    """Return settings of a schema beside the application's: the bench drops its own first."""
    return settings.with_(dsn=settings.dsn or "embedded:./.holdfast/bench", schema=f"{settings.schema}_bench")
