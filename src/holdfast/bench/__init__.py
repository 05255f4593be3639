"""`holdfast bench`: how fast Holdfast is here, against the bare SQL limit measured in the same run."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import UsageError
from holdfast.settings import Settings


def run(settings: Settings, *, workloads: Sequence[str] | None = None, scale: float = 1.0, json: bool = False) -> int:
    """Runs workloads and prints one line each; answers the exit code."""
    from holdfast.bench import report
    from holdfast.bench import workloads as known

    chosen = list(workloads or known.ALL)
    for name in chosen:
        if name not in known.ALL:
            raise UsageError(f"no workload named {name!r}; there are {', '.join(known.ALL)}")
    if not settings.dsn:
        settings = settings.with_(dsn="embedded:./.holdfast/bench")
    if settings.schema == "holdfast":
        settings = settings.with_(schema="holdfast_bench")
    with report.progress(json, chosen) as show:
        bench = known.Bench(settings, scale)
        for name in chosen:
            show(name, known.ALL[name](bench))
    return 0
