"""OpenTelemetry metrics, with the names and labels of Prometheus's. Needs the extra `otel`, and an SDK to export them.

Instruments are observed: a worker counts as it does for Prometheus, and the SDK reads the counts when it exports. The
API has no observed histogram, so the parts of one (`_bucket`, `_count`, `_sum`) are instruments of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from holdfast.errors import ConfigurationError
from holdfast.model.tick import Figures
from holdfast.settings import VERSION
from holdfast.store.call import Call
from holdfast.telemetry.metrics import DatabaseMetrics, Durations, Family

try:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter
except ImportError:
    raise ConfigurationError("metrics of OpenTelemetry need: pip install 'holdfast-jobs[otel]'") from None

Read = Callable[[], Iterable[Family]]
HISTOGRAM = ("_bucket", "_count", "_sum")
FRESH = 0.5  # seconds: the instruments of one export share one reading


class HasMeters(Protocol):
    """What an application declares: Registry."""

    @property
    def meters(self) -> list[Any]: ...


class HasRegistry(Protocol):
    """An application: Holdfast."""

    @property
    def registry(self) -> HasMeters: ...


class Collector(Protocol):
    """A collector with durations: WorkerMetrics, RequestMetrics."""

    durations: Durations

    def families(self) -> Iterator[Family]: ...


def measure(hf: HasRegistry, meter_provider: MeterProvider | None = None) -> None:
    """Export the metrics of an application's workers and services, with the given provider or the global one.

    Call it once, where `hf` is created.
    """
    hf.registry.meters.append(get_meter("holdfast", VERSION, meter_provider))


def observe(meter: Meter, collector: Collector) -> None:
    """Create the instruments of a worker, or of a service's requests."""
    _create(meter, collector.families(), collector.families)
    _create(meter, collector.durations.families(), collector.durations.families)


def observe_database(meter: Meter, schema: str, ask: Callable[[Call[Figures]], Figures]) -> None:
    """Create the instruments of the database. It is not read before the first export."""
    nothing = Figures({}, {}, 0, [], set())
    _create(meter, DatabaseMetrics(schema, lambda _: nothing).families(), DatabaseMetrics(schema, ask).families)


def _create(meter: Meter, families: Iterable[Family], read: Read) -> None:
    reading = Reading(read)
    for family in families:
        callbacks = [_callback(reading, family.name)]
        if family.is_counter:
            meter.create_observable_counter(f"{family.name}_total", callbacks, description=family.help)
        elif family.name.endswith(HISTOGRAM):
            meter.create_observable_up_down_counter(family.name, callbacks, description=family.help)
        else:
            meter.create_observable_gauge(family.name, callbacks, description=family.help)


class Reading:
    """The families of one export, by name."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._families: dict[str, Family] = {}
        self._until = 0.0

    def find(self, name: str) -> Family:
        """Return a family."""
        if time.monotonic() >= self._until:
            self._families = {family.name: family for family in self._read()}
            self._until = time.monotonic() + FRESH
        return self._families[name]


def _callback(reading: Reading, name: str) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def observations(options: CallbackOptions) -> Iterator[Observation]:
        family = reading.find(name)
        for labels, number in family.rows:
            yield Observation(number, dict(zip(family.labels, labels, strict=True)))

    return observations
