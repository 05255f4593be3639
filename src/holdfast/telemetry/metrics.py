"""Prometheus: what a worker did, read when somebody asks, and what waits in the database.

Workers count into plain lists and numbers; prometheus-client (extra `metrics`) is needed only to show them. Labels are
bounded: tasks by those that are registered, queues and outcomes by what there is. Never a tenant, a key or an id.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import ConfigurationError
from holdfast.model.tick import Figures
from holdfast.settings import VERSION
from holdfast.store.calls import Call
from holdfast.store.telemetry import STATES, TelemetryCalls
from holdfast.telemetry import logs

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

T = TypeVar("T")
log = logs.get("metrics")
BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)  # seconds
MOST_LABELS = 200  # tasks, or queues
OTHERS = "(others)"
FOLD = 1000  # durations kept one by one until they are sorted into buckets
PORTS = 16  # tried, from the one that is set: worker processes of one machine have one each
LEVELS = {"good": 0, "warning": 1, "critical": 2}


class Tally:
    """Attempts of one task."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.pending: list[float] = []
        self.below = [0] * (len(BUCKETS) + 1)  # durations up to each bound, and all
        self.seconds = 0.0

    def take(self, succeeded: list[float]) -> None:
        """Counts attempts that succeeded."""
        self.outcomes["succeeded"] += len(succeeded)
        self.pending += succeeded

    def copy(self) -> Tally:
        """As it is now."""
        copy = Tally()
        copy.outcomes, copy.pending = self.outcomes.copy(), self.pending.copy()
        copy.below, copy.seconds = self.below, self.seconds
        return copy

    def fold(self) -> None:
        """Sorts the pending durations into their buckets."""
        done = sorted(self.pending)
        self.pending.clear()
        self.below = [
            before + bisect_right(done, bound)
            for before, bound in zip(self.below, (*BUCKETS, float("inf")), strict=True)
        ]
        self.seconds += sum(done)


class _Lists(dict[str, list[float]]):
    """A list for each key that is asked for. It grows only under the lock, so that whoever has that may walk it."""

    def __init__(self, lock: contextlib.AbstractContextManager[object]) -> None:
        self._lock = lock

    def __missing__(self, key: str) -> list[float]:
        with self._lock:
            return self.setdefault(key, [])


class Stats:
    """Attempts by task. The worker's loop notes, another thread reads."""

    def __init__(self, tasks: Container[str]) -> None:
        self._known = tasks
        self._tallies: dict[str, Tally] = {}
        self._lock = threading.RLock()
        # How long attempts ran that succeeded, by task. Almost all do, so a worker appends here without a call and
        # says `settle` now and then.
        self.succeeded = _Lists(self._lock)

    def note(self, task: str, outcome: str, seconds: float | None) -> None:
        """Takes one attempt; seconds is None for one that was never started."""
        tally = self._tallies.get(task) or self._new(task)
        tally.outcomes[outcome] += 1
        if seconds is not None:
            tally.pending.append(seconds)
            if len(tally.pending) >= FOLD:
                with self._lock:
                    tally.fold()

    def settle(self) -> None:
        """Counts what succeeded, of tasks that have much of it. Called by whoever notes: see `read`."""
        for task, took in self.succeeded.items():
            if len(took) >= FOLD:
                with self._lock:
                    tally = self._tallies.get(task) or self._new(task)
                    tally.take(took)
                    took.clear()
                    tally.fold()

    def _new(self, task: str) -> Tally:
        """Anybody may enqueue jobs of tasks that nobody knows, so those have no label of their own. One that was shown
        is kept: a counter that goes back or away looks like a restart."""
        with self._lock:
            name = task if task in self._known and len(self._tallies) < MOST_LABELS else OTHERS
            return self._tallies.setdefault(name, Tally())

    def read(self) -> dict[str, tuple[dict[str, int], list[int], float]]:
        """By task: attempts by outcome, durations up to each bound, seconds in all. Moves nothing: what is noted
        meanwhile, without the lock, would be lost."""
        with self._lock:
            succeeded = {task: list(took) for task, took in self.succeeded.items()}
            for task in succeeded:
                if task not in self._tallies:
                    self._new(task)
            read = {task: tally.copy() for task, tally in self._tallies.items()}
        for task, took in succeeded.items():
            read[task if task in read else OTHERS].take(took)
        for tally in read.values():
            tally.fold()
        return {task: (dict(tally.outcomes), tally.below, tally.seconds) for task, tally in read.items()}


class WorkerMetrics:
    """A collector of one worker's figures."""

    def __init__(
        self, stats: Stats, counters: Callable[[], Mapping[str, float]], gauges: Callable[[], Mapping[str, float]]
    ) -> None:
        self._stats = stats
        self._counters = counters
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        """What Prometheus asks for."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        yield from _tallied(self._stats, "holdfast_attempts", "Attempts that ended here.", "task", "outcome",
                            "holdfast_attempt_duration_seconds", "How long attempts ran.")  # fmt: skip
        for name, value in self._counters().items():
            yield CounterMetricFamily(f"holdfast_{name}", _HELP[name], value)
        for name, value in self._gauges().items():
            yield GaugeMetricFamily(f"holdfast_{name}", _HELP[name], value)
        info = GaugeMetricFamily("holdfast_worker_info", "A worker of this version runs.", labels=["version"])
        info.add_metric([VERSION], 1)
        yield info


class DatabaseMetrics:
    """A collector of what is in the database, for the service or any one process. It costs a query of bounded cost each
    time; see the view queue_depth."""

    def __init__(self, schema: str, ask: Callable[[Call[Figures]], Figures]) -> None:
        self._calls = TelemetryCalls(schema)
        self._ask = ask

    @property
    def call(self) -> Call[Figures]:
        """What is asked of the database."""
        return self._calls.figures(MOST_LABELS, OTHERS)

    def collect(self) -> Iterator[Metric]:
        """What Prometheus asks for."""
        from prometheus_client.core import GaugeMetricFamily

        found = self._ask(self.call)
        jobs = GaugeMetricFamily("holdfast_queue_jobs", "Jobs in a queue.", labels=["queue", "state"])
        for queue, states in found.jobs.items():
            for state, number in states.items():
                jobs.add_metric([queue, state], number)
        yield jobs
        estimated = GaugeMetricFamily("holdfast_queue_jobs_estimated", "1 where jobs of a state are estimated, since "
                                      "their table is large.", labels=["state"])  # fmt: skip
        for state in STATES:
            estimated.add_metric([state], state in found.estimated)
        yield estimated
        wait = GaugeMetricFamily("holdfast_queue_oldest_wait_seconds", "Since when the oldest due job waits.",
                                 labels=["queue"])  # fmt: skip
        for queue, seconds in found.waits.items():
            wait.add_metric([queue], seconds)
        yield wait
        yield GaugeMetricFamily("holdfast_workers", "Workers that live.", found.workers)
        level = GaugeMetricFamily("holdfast_health_level", "0 is good, 1 a warning, 2 critical.", labels=["metric"])
        for each in found.levels:
            if each.level is not None:
                level.add_metric([each.metric], LEVELS[each.level])
        yield level


class RequestMetrics:
    """A collector of what a service answered: by route, as the document names it, and status."""

    def __init__(self, stats: Stats, waiting: Callable[[], int]) -> None:
        self._stats = stats
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        """What Prometheus asks for."""
        from prometheus_client.core import GaugeMetricFamily

        yield from _tallied(self._stats, "holdfast_http_requests", "Requests answered.", "route", "status",
                            "holdfast_http_request_duration_seconds", "How long answers took.")  # fmt: skip
        yield GaugeMetricFamily("holdfast_http_requests_waiting", "Requests that wait for a job.", self._waiting())


def _tallied(stats: Stats, name: str, words: str, by: str, outcome: str, took: str, long: str) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    counted = CounterMetricFamily(name, words, labels=[by, outcome])
    lasted = HistogramMetricFamily(took, long, labels=[by])
    bounds = [*map(str, BUCKETS), "+Inf"]
    for each, (outcomes, below, seconds) in stats.read().items():
        for came, number in outcomes.items():
            counted.add_metric([each, came], number)
        lasted.add_metric([each], list(zip(bounds, below, strict=True)), seconds)
    yield counted
    yield lasted


_HELP = {
    "jobs_claimed": "Jobs claimed by this worker.",
    "jobs_throttled": "Times that a claim stepped over work because of a limit.",
    "lock_contentions": "Times that somebody else had a limit.",
    "results_refused": "Results refused because their lease was lost.",
    "jobs_running": "Handlers at work.",
    "jobs_ready": "Jobs claimed and not yet started.",
    "worker_slots": "Handlers that may run at once.",
}


def exposition(*collectors: Collector) -> tuple[bytes, str]:
    """The figures as text for Prometheus, and its content type."""
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    return generate_latest(_registry(collectors)), CONTENT_TYPE_LATEST


@contextlib.contextmanager
def served(host: str, port: int, *collectors: Collector) -> Iterator[int]:
    """Shows the figures on a port while a block runs; the next free one where it is taken. Answers which."""
    try:
        from prometheus_client import start_http_server
    except ImportError:
        raise ConfigurationError("metrics_port needs: pip install 'holdfast[metrics]'") from None
    for number in range(port, port + PORTS):
        try:
            server, thread = start_http_server(number, host, _registry(collectors))
            break
        except OSError as error:
            problem = error
    else:
        raise ConfigurationError(
            f"metrics_port: none of {port} to {port + PORTS - 1} can be opened on {host}: {problem}; set another"
        )
    logs.event(log, logging.INFO, "metrics shown", host=host, port=number)
    try:
        yield number
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _registry(collectors: tuple[Collector, ...]) -> Any:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    for each in collectors:
        registry.register(each)
    return registry
