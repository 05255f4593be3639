"""Prometheus metrics: a worker's counts, read at scrape time, and the jobs waiting in the database.

Workers count into plain lists and numbers; prometheus-client (extra `metrics`) is needed only to expose them. Labels
are bounded: registered tasks, existing queues and outcomes. A tenant, a key or an id is never a label.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import ConfigurationError
from holdfast.model.tick import Figures
from holdfast.settings import VERSION
from holdfast.store.call import Call
from holdfast.store.figures import STATES, FigureCalls

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

T = TypeVar("T")
BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)  # seconds
MOST_LABELS = 200  # tasks, or queues
OTHERS = "(others)"
FOLD = 1000  # durations kept until they are sorted into buckets
LEVELS = {"good": 0, "warning": 1, "critical": 2}


class Tally:
    """Attempts of one task."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.pending: list[float] = []
        self.below = [0] * (len(BUCKETS) + 1)  # durations up to each bound, and all
        self.seconds = 0.0

    def take(self, succeeded: list[float]) -> None:
        """Count attempts that succeeded."""
        self.outcomes["succeeded"] += len(succeeded)
        self.pending += succeeded

    def copy(self) -> Tally:
        """Return a snapshot."""
        copy = Tally()
        copy.outcomes, copy.pending = self.outcomes.copy(), self.pending.copy()
        copy.below, copy.seconds = self.below, self.seconds
        return copy

    def fold(self) -> None:
        """Sort the pending durations into their buckets."""
        durations = sorted(self.pending)
        self.pending.clear()
        self.below = [
            before + bisect_right(durations, bound)
            for before, bound in zip(self.below, (*BUCKETS, float("inf")), strict=True)
        ]
        self.seconds += sum(durations)


class _Lists(dict[str, list[float]]):
    """A list per key, created on first access. It grows only under the lock, so the holder may iterate."""

    def __init__(self, lock: contextlib.AbstractContextManager[object]) -> None:
        self._lock = lock

    def __missing__(self, key: str) -> list[float]:
        with self._lock:
            return self.setdefault(key, [])


class Stats:
    """Attempts by task. The worker's loop writes, another thread reads."""

    def __init__(self, tasks: Container[str]) -> None:
        self._known = tasks
        self._tallies: dict[str, Tally] = {}
        self._lock = threading.RLock()
        # Durations of successful attempts, by task. This is the fast path: a worker appends without a call, and calls
        # `settle` from time to time.
        self.succeeded = _Lists(self._lock)

    def note(self, task: str, outcome: str, seconds: float | None) -> None:
        """Count one attempt; seconds is None for one that was never started."""
        tally = self._tallies.get(task) or self._new(task)
        tally.outcomes[outcome] += 1
        if seconds is not None:
            tally.pending.append(seconds)
            if len(tally.pending) >= FOLD:
                with self._lock:
                    tally.fold()

    def settle(self) -> None:
        """Count the successes of tasks with many of them. Only the writing thread may call this: see `read`."""
        for task, durations in self.succeeded.items():
            if len(durations) >= FOLD:
                with self._lock:
                    tally = self._tallies.get(task) or self._new(task)
                    tally.take(durations)
                    durations.clear()
                    tally.fold()

    def _new(self, task: str) -> Tally:
        """Return a new tally. Unknown tasks share one label, because any client may enqueue them. A tally is never
        removed: a counter that decreases or disappears looks like a restart."""
        with self._lock:
            name = task if task in self._known and len(self._tallies) < MOST_LABELS else OTHERS
            return self._tallies.setdefault(name, Tally())

    def read(self) -> dict[str, tuple[dict[str, int], list[int], float]]:
        """Return by task: attempts by outcome, durations up to each bound, and total seconds. It works on copies:
        entries are added without the lock, and moving them would lose some."""
        with self._lock:
            succeeded = {task: list(durations) for task, durations in self.succeeded.items()}
            for task in succeeded:
                if task not in self._tallies:
                    self._new(task)
            tallies = {task: tally.copy() for task, tally in self._tallies.items()}
        for task, durations in succeeded.items():
            tallies[task if task in tallies else OTHERS].take(durations)
        for tally in tallies.values():
            tally.fold()
        return {task: (dict(tally.outcomes), tally.below, tally.seconds) for task, tally in tallies.items()}


class WorkerMetrics:
    """A collector of one worker's metrics."""

    def __init__(
        self, stats: Stats, counters: Callable[[], Mapping[str, float]], gauges: Callable[[], Mapping[str, float]]
    ) -> None:
        self._stats = stats
        self._counters = counters
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        yield from _families(
            self._stats,
            "holdfast_attempts",
            "Attempts that ended in this worker.",
            "task",
            "outcome",
            "holdfast_attempt_duration_seconds",
            "Duration of attempts.",
        )
        for name, value in self._counters().items():
            yield CounterMetricFamily(f"holdfast_{name}", _HELP[name], value)
        for name, value in self._gauges().items():
            yield GaugeMetricFamily(f"holdfast_{name}", _HELP[name], value)
        info = GaugeMetricFamily("holdfast_worker_info", "1 for the version of this worker.", labels=["version"])
        info.add_metric([VERSION], 1)
        yield info


class DatabaseMetrics:
    """A collector of database metrics, for the service or any one process. Each collection reads the newest snapshot,
    so it counts no table."""

    def __init__(self, schema: str, ask: Callable[[Call[Figures]], Figures]) -> None:
        self._calls = FigureCalls(schema)
        self._ask = ask

    @property
    def call(self) -> Call[Figures]:
        """Return the query."""
        return self._calls.metrics(MOST_LABELS, OTHERS)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        from prometheus_client.core import GaugeMetricFamily

        figures = self._ask(self.call)
        jobs = GaugeMetricFamily("holdfast_queue_jobs", "Jobs in a queue.", labels=["queue", "state"])
        for queue, states in figures.jobs.items():
            for state, number in states.items():
                jobs.add_metric([queue, state], number)
        yield jobs
        estimated = GaugeMetricFamily(
            "holdfast_queue_jobs_estimated",
            "1 where the jobs of a state are estimated, because their table is large.",
            labels=["state"],
        )
        for state in STATES:
            estimated.add_metric([state], state in figures.estimated)
        yield estimated
        wait = GaugeMetricFamily("holdfast_queue_oldest_wait_seconds", "Wait of the oldest due job.", labels=["queue"])
        for queue, seconds in figures.waits.items():
            wait.add_metric([queue], seconds)
        yield wait
        yield GaugeMetricFamily("holdfast_workers", "Live workers.", figures.workers)
        yield GaugeMetricFamily(
            "holdfast_figures_taken_seconds", "When jobs were counted, in Unix time.", figures.taken_at
        )
        level = GaugeMetricFamily("holdfast_health_level", "0 is good, 1 a warning, 2 critical.", labels=["metric"])
        for each in figures.levels:
            if each.level is not None:
                level.add_metric([each.metric], LEVELS[each.level])
        yield level


class RequestMetrics:
    """A collector of a service's requests, by route (as in the OpenAPI document) and status."""

    def __init__(self, stats: Stats, waiting: Callable[[], int]) -> None:
        self._stats = stats
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        from prometheus_client.core import GaugeMetricFamily

        yield from _families(
            self._stats,
            "holdfast_http_requests",
            "Completed requests.",
            "route",
            "status",
            "holdfast_http_request_duration_seconds",
            "Duration of requests.",
        )
        yield GaugeMetricFamily("holdfast_http_requests_waiting", "Requests that wait for a job.", self._waiting())


def _families(
    stats: Stats, counter: str, counter_help: str, by: str, outcome: str, histogram: str, histogram_help: str
) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    counts = CounterMetricFamily(counter, counter_help, labels=[by, outcome])
    durations = HistogramMetricFamily(histogram, histogram_help, labels=[by])
    bounds = [*map(str, BUCKETS), "+Inf"]
    for each, (outcomes, below, seconds) in stats.read().items():
        for name, number in outcomes.items():
            counts.add_metric([each, name], number)
        durations.add_metric([each], list(zip(bounds, below, strict=True)), seconds)
    yield counts
    yield durations


_HELP = {
    "jobs_claimed": "Jobs claimed by this worker.",
    "jobs_throttled": "Times that a claim skipped work because of a limit.",
    "lock_contentions": "Times that another worker had locked a limit.",
    "results_refused": "Results refused because their lease was lost.",
    "jobs_running": "Running handlers.",
    "jobs_ready": "Jobs claimed and not yet started.",
    "worker_slots": "Handlers that may run at once.",
}


def exposition(*collectors: Collector, accept: str = "") -> tuple[bytes, str]:
    """Return the metrics in the format that the client accepts, by default Prometheus's text, and its content type."""
    try:
        from prometheus_client.exposition import choose_encoder
    except ImportError:
        raise ConfigurationError("metrics_port needs: pip install 'holdfast[metrics]'") from None
    encode, content_type = choose_encoder(accept)
    return encode(_registry(collectors)), content_type


def pages(*collectors: Collector) -> dict[str, Callable[[str], tuple[bytes, str]]]:
    """Return the pages of the metrics port, by path."""
    exposition(*collectors)  # fails at once where prometheus-client is missing

    def page(accept: str) -> tuple[bytes, str]:
        return exposition(*collectors, accept=accept)

    return {"/metrics": page, "/": page}


def _registry(collectors: tuple[Collector, ...]) -> Any:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    for each in collectors:
        registry.register(each)
    return registry
