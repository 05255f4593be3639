"""Each operation of a noun is defined once and offered as a sync and an async method."""

from __future__ import annotations

import inspect

import pytest

from holdfast import Holdfast
from holdfast.client.operation import (
    AsyncIterator,
    AsyncMethod,
    Items,
    Noun,
    SyncIterator,
    SyncMethod,
    iteration,
    operation,
)
from holdfast.store.call import Call

NOUNS = ("jobs", "queues", "workers", "batches", "dead", "limits", "schedules", "outbox", "tokens", "webhooks")
OTHERS = {"adding", "rotating", "testing"}  # of webhooks: calls for the transactions of the service


SYNC, ASYNC = (SyncMethod, SyncIterator), (AsyncMethod, AsyncIterator)


def methods(noun: type, kind: type | tuple[type, ...]) -> set[str]:
    return {name for name, found in vars(noun).items() if isinstance(found, kind)}


@pytest.mark.parametrize("name", NOUNS)
def test_each_sync_operation_has_an_async_form_and_the_other_way_round(name: str) -> None:
    noun = type(getattr(Holdfast("postgresql://nowhere"), name))
    sync = methods(noun, SYNC)
    assert sync and {f"a{each}" for each in sync} == methods(noun, ASYNC)
    plain = {each for each, found in vars(noun).items() if inspect.isfunction(found) and not each.startswith("_")}
    assert plain - OTHERS == set(), "an operation that is no operation()"


@pytest.mark.parametrize("name", NOUNS)
def test_operations_have_names_signatures_and_docstrings(name: str) -> None:
    noun = getattr(Holdfast("postgresql://nowhere"), name)
    coroutines = methods(type(noun), AsyncMethod)
    for each in methods(type(noun), SYNC + ASYNC):
        found = getattr(noun, each)
        assert found.__name__ == each and found.__doc__
        assert "self" not in inspect.signature(found).parameters
        assert inspect.iscoroutinefunction(found) == (each in coroutines)


def test_the_application_itself_has_few_public_names() -> None:
    names = [name for name in dir(Holdfast) if not name.startswith("_")]
    assert len(names) <= 45, names


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
