"""Each operation of a noun is defined once and offered as a sync and an async method."""

from __future__ import annotations

import inspect

import pytest

from holdfast import Batch, Channel, Enqueuer, Handle, Handles, Holdfast, Task
from holdfast.client.database import Database
from holdfast.client.operation import Items, Noun, is_operation, iteration, operation
from holdfast.client.registry import Registry
from holdfast.store.call import Call
from holdfast.testing import Kit

NOUNS = (
    "actions",
    "jobs",
    "queues",
    "workers",
    "batches",
    "dead",
    "limits",
    "schedules",
    "outbox",
    "tokens",
    "webhooks",
)
CLASSES = (Batch, Channel, Database, Enqueuer, Handle, Handles, Holdfast, Kit, Registry, Task)
ONE_FORM = {
    "Batch": set(),
    "Channel": {"fill"},  # no I/O
    "Database": {"close", "close_all", "close_loop", "notify"},  # what the forms of hf.close() call; a queue in memory
    "Enqueuer": {"checked_job", "job_of", "new_job", "schedule", "using"},  # no I/O
    "Handle": set(),
    "Handles": {"count", "index"},  # of a sequence
    "Holdfast": {"around_attempt", "around_enqueue", "batch", "channel", "classify", "resource", "task"}  # declare
    | {"migrate"},  # once, before anything runs
    "Kit": {"all_emitted", "all_enqueued", "assert_emitted", "assert_enqueued", "refute_emitted", "refute_enqueued"}
    | {"bind", "context", "inline", "refuse_to_wait", "waiting"},  # only read the test's database, in microseconds
    "Outbox": {"new_message"},  # no I/O
    "Registry": {"add_limits", "add_schedule", "add_task", "describe_tasks", "find_task"},  # no I/O
    "Task": {"check_payload", "describe", "encode", "encode_call", "keys", "outcome_of"},  # no I/O
    "Webhooks": {"adding", "changing", "rotating", "testing"},  # calls for the service's own transactions
}


def nouns() -> list[Noun]:
    hf = Holdfast("postgresql://nowhere")
    return [getattr(hf, name) for name in NOUNS]


def methods(cls: type) -> dict[str, object]:
    """Return the functions of a class and its parents, with __enter__ and the like."""
    found = dict(inspect.getmembers(cls, inspect.isfunction))
    forms = ("__enter__", "__aenter__", "__exit__", "__aexit__")
    return {name: each for name, each in found.items() if not name.startswith("_") or name in forms}


def is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def async_name(name: str) -> str:
    return f"__a{name[2:]}" if name.startswith("__") else f"a{name}"


@pytest.mark.parametrize("cls", [*CLASSES, *map(type, nouns())], ids=lambda cls: cls.__name__)
def test_each_method_has_both_forms_by_one_definition(cls: type) -> None:
    every = methods(cls)
    names = {name for name, each in every.items() if is_operation(each) and not is_async(each)}
    own = {name for each in cls.__mro__ for name in ONE_FORM.get(each.__name__, set())}
    assert names | {async_name(name) for name in names} | own | ({"__enter__", "__exit__"} & {*every}) == {*every}


@pytest.mark.parametrize("noun", nouns(), ids=lambda noun: type(noun).__name__)
def test_operations_have_names_signatures_and_docstrings(noun: Noun) -> None:
    for name, each in methods(type(noun)).items():
        assert getattr(each, "__name__", None) == name and (each.__doc__ or not is_operation(each))
        assert "self" not in inspect.signature(getattr(noun, name)).parameters


def test_the_application_itself_has_few_public_names() -> None:
    names = [name for name in dir(Holdfast("postgresql://nowhere")) if not name.startswith("_")]
    assert len(names) <= 28, names


async def test_an_operation_of_several_calls_runs_on_both_pools(hf: Holdfast) -> None:
    class Sums(Noun):
        def _add(self, first: int, second: int):  # type: ignore[no-untyped-def]
            """Add two numbers in the database; nothing to do if one is 0."""
            if not first:
                return second
            one = yield Call("SELECT %s::int", (first,), lambda rows: rows[0][0])
            two = yield Call("SELECT %s::int", (second,), lambda rows: rows[0][0])
            return one + two

        add, aadd = operation(_add)

    assert (Sums(hf).add(1, 2), Sums(hf).add(0, 2), await Sums(hf).aadd(0, 2)) == (3, 2, 2)
    assert await Sums(hf).aadd(3, second=4) == 7


async def test_an_iteration_runs_each_step_when_its_items_are_wanted(hf: Holdfast) -> None:
    class Numbers(Noun):
        def _count(self, most: int):  # type: ignore[no-untyped-def]
            """Count in the database, two numbers a step."""
            for first in range(0, most, 2):
                found = yield Call("SELECT generate_series(%s::int, %s::int)", (first, first + 1), lambda rows: rows)
                steps.append(first)
                yield Items([row[0] for row in found])

        count, acount = iteration(_count)

    steps: list[int] = []
    numbers = Numbers(hf).count(4)
    assert (next(numbers), steps) == (0, [0])
    assert (list(numbers), steps) == ([1, 2, 3], [0, 2])
    assert [each async for each in Numbers(hf).acount(4)] == [0, 1, 2, 3]
