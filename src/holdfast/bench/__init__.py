"""`holdfast bench`: the speed of Holdfast on this machine, relative to the bare SQL limit measured in the same run.

Five workloads, in less than a minute. The long suites are in the repository: `python -m bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.errors import UsageError, hint
from holdfast.settings import Settings

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
    from holdfast.bench import harness, report
    from holdfast.bench.workloads import ALL

    if known is None:
        known, scale = ALL, scale * QUICK
    chosen = list(workloads or known)
    for name in chosen:
        _require(name, known)
    bench = harness.Bench(_own_schema(settings), scale)
    problems, shown = 0, report.Report(json=json, workloads=len(chosen))
    for name in chosen:
        explanation = (known[name].__doc__ or "").partition("\n")[0]
        with shown.measuring(name, explanation) as bench.report:
            result = known[name](bench)
        shown.show(result, explanation)
        problems += len(result.problems)
    return 1 if problems else 0


def _require(name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        names = ", ".join(known)
        raise UsageError(f"no workload named {name!r}{hint(name, known, f'; known: {names}')}")


def _own_schema(settings: Settings) -> Settings:
    """Return settings that never point to an application's own tables."""
    if not settings.dsn:
        settings = settings.with_(dsn="embedded:./.holdfast/bench")
    return settings.with_(schema="holdfast_bench") if settings.schema == "holdfast" else settings
