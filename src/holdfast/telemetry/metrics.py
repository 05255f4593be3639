"""Prometheus metrics: a worker's counts, read at scrape time, and the jobs waiting in the database.

Workers count into plain lists and numbers; prometheus-client (extra `metrics`) is needed only to expose them. Labels
are bounded: registered tasks, existing queues and outcomes. A tenant, a key or an id is never a label.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import ConfigurationError
from holdfast.model.health import LEVELS
from holdfast.model.tick import Figures
from holdfast.settings import VERSION
from holdfast.store.call import Call
from holdfast.store.figures import STATES, FigureCalls
from holdfast.store.horizon import KINDS

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

Rows = list[tuple[tuple[str, ...], float]]
BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)  # seconds
BOUNDS = (*map(str, BUCKETS), "+Inf")
MOST_LABELS = 200  # tasks, or queues
OTHERS = "(others)"
FOLD = 1000  # durations kept until they are sorted into buckets


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
    """Attempts by task. The worker's loop writes, another thread reads. meters: those of OpenTelemetry that export
    them."""

    def __init__(self, tasks: Container[str], meters: Sequence[Any] = ()) -> None:
        self._known = tasks
        self.meters = meters
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


class Family(NamedTuple):
    """A counter or a gauge: its rows are the values of the labels, and the number."""

    name: str
    help: str
    rows: Rows
    labels: tuple[str, ...] = ()
    is_counter: bool = False


class WorkerMetrics:
    """A collector of one worker's metrics."""

    def __init__(
        self, stats: Stats, counters: Callable[[], Mapping[str, float]], gauges: Callable[[], Mapping[str, float]]
    ) -> None:
        self.durations = Durations(
            stats,
            ("holdfast_attempts", "Attempts that ended in this worker.", "task", "outcome"),
            ("holdfast_attempt_duration_seconds", "Duration of attempts."),
        )
        self._counters = counters
        self._gauges = gauges

    def families(self) -> Iterator[Family]:
        """Yield what is not a duration."""
        for name, value in self._counters().items():
            yield Family(f"holdfast_{name}", _HELP[name], [((), value)], is_counter=True)
        for name, value in self._gauges().items():
            yield Family(f"holdfast_{name}", _HELP[name], [((), value)])
        yield Family("holdfast_worker_info", "1 for the version of this worker.", [((VERSION,), 1)], ("version",))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self.durations.collect()
        yield from map(_metric, self.families())


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

    def families(self) -> Iterator[Family]:
        """Yield the gauges."""
        figures = self._ask(self.call)
        jobs: Rows = [((queue, state), number) for queue, of in figures.jobs.items() for state, number in of.items()]
        yield Family("holdfast_queue_jobs", "Jobs in a queue.", jobs, ("queue", "state"))
        estimated: Rows = [((state,), state in figures.estimated) for state in STATES]
        yield Family("holdfast_queue_jobs_estimated", _HELP["queue_jobs_estimated"], estimated, ("state",))
        waits: Rows = [((queue,), seconds) for queue, seconds in figures.waits.items()]
        yield Family("holdfast_queue_oldest_wait_seconds", "Wait of the oldest due job.", waits, ("queue",))
        yield Family("holdfast_workers", "Live workers.", [((), figures.workers)])
        yield Family(
            "holdfast_figures_taken_seconds", "When jobs were counted, in Unix time.", [((), figures.taken_at)]
        )
        levels: Rows = [((each.metric,), LEVELS[each.level]) for each in figures.levels if each.level is not None]
        yield Family("holdfast_health_level", "0 is good, 1 a warning, 2 critical.", levels, ("metric",))
        holders: Rows = [((kind,), figures.holders.get(kind, 0)) for kind in KINDS]
        yield Family("holdfast_horizon_holders", _HELP["horizon_holders"], holders, ("kind",))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from map(_metric, self.families())


class RequestMetrics:
    """A collector of a service's requests, by route (as in the OpenAPI document) and status."""

    def __init__(self, stats: Stats, waiting: Callable[[], int]) -> None:
        self.durations = Durations(
            stats,
            ("holdfast_http_requests", "Completed requests.", "route", "status"),
            ("holdfast_http_request_duration_seconds", "Duration of requests."),
        )
        self._waiting = waiting

    def families(self) -> Iterator[Family]:
        """Yield what is not a duration."""
        yield Family("holdfast_http_requests_waiting", "Requests that wait for a job.", [((), self._waiting())])

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self.durations.collect()
        yield from map(_metric, self.families())


class Durations:
    """What `Stats` counts, as a counter of outcomes and a histogram."""

    def __init__(self, stats: Stats, counter: tuple[str, str, str, str], histogram: tuple[str, str]) -> None:
        self._stats = stats
        self._counter, self._counter_help, *self._labels = counter
        self._histogram, self._histogram_help = histogram

    def families(self) -> Iterator[Family]:
        """Yield the counter, and the parts of the histogram as gauges."""
        read = self._stats.read()
        by, outcome = self._labels
        counts: Rows = [((each, name), number) for each, (of, _, _) in read.items() for name, number in of.items()]
        yield Family(self._counter, self._counter_help, counts, (by, outcome), is_counter=True)
        parts = [(each, list(zip(BOUNDS, below, strict=True)), seconds) for each, (_, below, seconds) in read.items()]
        buckets: Rows = [((each, bound), number) for each, below, _ in parts for bound, number in below]
        yield Family(f"{self._histogram}_bucket", self._histogram_help, buckets, (by, "le"))
        yield Family(f"{self._histogram}_count", self._histogram_help, [((e,), b[-1][1]) for e, b, _ in parts], (by,))
        yield Family(f"{self._histogram}_sum", self._histogram_help, [((e,), s) for e, _, s in parts], (by,))

    def collect(self) -> Iterator[Metric]:
        """Yield the counter and the histogram."""
        from prometheus_client.core import HistogramMetricFamily

        counter = next(self.families())
        yield _metric(counter)
        durations = HistogramMetricFamily(self._histogram, self._histogram_help, labels=self._labels[:1])
        for each, (_, below, seconds) in self._stats.read().items():
            durations.add_metric([each], list(zip(BOUNDS, below, strict=True)), seconds)
        yield durations


def _metric(family: Family) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, number in family.rows:
        metric.add_metric(labels, number)
    return metric


_HELP = {
    "claims": "Claims made by this worker, with jobs or without.",
    "jobs_claimed": "Jobs claimed by this worker.",
    "jobs_throttled": "Times that a claim skipped work because of a limit.",
    "lock_contentions": "Times that another worker had locked a limit.",
    "results_refused": "Results refused because their lease was lost.",
    "jobs_running": "Running handlers.",
    "jobs_ready": "Jobs claimed and not yet started.",
    "worker_slots": "Handlers that may run at once.",
    "queue_jobs_estimated": "1 where the jobs of a state are estimated, because their table is large.",
    "horizon_holders": "Transactions open for over 5 minutes, and replication slots, that keep vacuum from working.",
}


def exposition(*collectors: Collector, accept: str = "") -> tuple[bytes, str]:
    """Return the metrics in the format that the client accepts, by default Prometheus's text, and its content type."""
    try:
        from prometheus_client.exposition import choose_encoder
    except ImportError:
        raise ConfigurationError("metrics_port needs: pip install 'holdfast-jobs[metrics]'") from None
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
