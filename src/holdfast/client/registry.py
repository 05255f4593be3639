"""What one application declares: tasks, channels, resources, limits, schedules, middleware, rules for errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast.client.middleware import Around
from holdfast.errors import ConfigurationError, UnknownTask
from holdfast.model.failure import Failure
from holdfast.model.limit import Limit
from holdfast.model.resource import Resource
from holdfast.model.retry import ErrorTable, Retry
from holdfast.model.schedule import Schedule

if TYPE_CHECKING:
    from holdfast.client.channel import Channel
    from holdfast.client.task import Task


class Registry:
    """`hf.registry`."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.channels: dict[str, Channel[Any, Any]] = {}
        self.resources: list[Resource[Any]] = []
        self.schedules: dict[str, Schedule] = {}
        self.errors = ErrorTable()
        self.around_enqueue = Around()
        self.around_attempt = Around(may_swallow=True)
        self.on_failure: list[Callable[[Failure], None]] = []  # called for every failed attempt, on the worker's loop
        self.meters: list[Any] = []  # of OpenTelemetry, set by telemetry.meters.measure
        self.webhook_retry: Retry | None = None  # set by hf.webhooks.retry
        self._limits: dict[str, tuple[str, Limit]] = {}  # by pattern: the first task that declared it

    def add_task(self, task: Task[Any, Any]) -> None:
        """Add a task and its limits."""
        if task.name in self.tasks:
            raise ConfigurationError(f"two tasks are named {task.name!r}; give one of them another name=")
        self.add_limits(task.name, task.limits.all if task.limits is not None else ())
        self.tasks[task.name] = task

    def find_task(self, name: str) -> Task[Any, Any]:
        """Return a task by name, or raise UnknownTask."""
        if name not in self.tasks:
            raise UnknownTask(name, self.tasks)
        return self.tasks[name]

    def add_schedule(self, schedule: Schedule) -> None:
        """Add a schedule. Workers register it in the database when they start."""
        if schedule.name in self.schedules:
            raise ConfigurationError(f"two schedules are named {schedule.name!r}; give one of them another name")
        self.schedules[schedule.name] = schedule

    def add_limits(self, task: str, added: Iterable[Limit]) -> None:
        """Add the limits of a task. Limits of different tasks with the same key must be equal."""
        limits = dict(self._limits)
        for limit in added:
            other, known = limits.setdefault(limit.pattern, (task, limit))
            if known.as_json() != limit.as_json():
                raise ConfigurationError(
                    f"tasks {other!r} and {task!r} declare limit {limit.key!r} with different values: "
                    f"{known.as_json()} and {limit.as_json()}; make them equal, or rename one of the keys"
                )
        self._limits = limits

    @property
    def limits(self) -> list[Limit]:
        """The limits of all tasks, one for each pattern."""
        return [limit for _, (_, limit) in sorted(self._limits.items())]

    def describe_tasks(self) -> list[dict[str, Any]]:
        """Return the descriptions of all tasks, which a worker registers in the database."""
        return [task.describe() for _, task in sorted(self.tasks.items())]
