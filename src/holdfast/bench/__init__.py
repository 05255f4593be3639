"""`holdfast bench`: Holdfast's speed on this machine, relative to the bare SQL limit measured in the same run."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from holdfast.errors import UsageError
from holdfast.settings import Settings


def run(settings: Settings, *, workloads: Sequence[str] | None = None, scale: float = 1.0, json: bool = False) -> int:
    """Run workloads and print one line each. Return the exit code."""
    from holdfast.bench import effects, flow, latency, observed, report, serve
    from holdfast.bench import workloads as engine

    known = engine.ALL | latency.ALL | flow.ALL | effects.ALL | serve.ALL | observed.ALL
    chosen = list(workloads or known)
    for name in chosen:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise UsageError(f"no workload named {name!r}; {hint}")
    if not settings.dsn:
        settings = settings.with_(dsn="embedded:./.holdfast/bench")
    if settings.schema == "holdfast":
        settings = settings.with_(schema="holdfast_bench")
    problems, shown = 0, report.Report(json=json, workloads=len(chosen))
    bench = engine.Bench(settings, scale)
    for name in chosen:
        with shown.measuring(name, (known[name].__doc__ or "").partition("\n")[0]) as bench.report:
            result = known[name](bench)
        shown.show(result)
        problems += len(result.problems)
    return 1 if problems else 0
