"""Handles: what enqueue returns, as people see it."""

from __future__ import annotations

import pytest

from holdfast import Handle, Handles, Holdfast

hf = Holdfast("postgresql://nowhere/none")


@hf.task(name="app.send")
async def send(to: str) -> None: ...


def test_a_handle_shows_the_job_its_task_and_what_became_of_the_call() -> None:
    handle: Handle[None] = Handle("018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f", "created", hf, send.signature)
    assert repr(handle) == "<job 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f of task 'app.send', created>"


def test_handles_are_a_sequence_in_the_order_of_the_calls() -> None:
    handles: Handles[None] = Handles(["a", "b", "c"], ["created", "existing", "created"], hf, send.signature)
    assert [(each.id, each.existing) for each in handles] == [("a", False), ("b", True), ("c", False)]
    assert (len(handles), handles[-1].id, handles[1:].ids, handles[1:][0].existing) == (3, "c", ["b", "c"], True)
    assert handles[0] in handles and next(reversed(handles)).id == "c"
    assert repr(handles) == "<3 jobs of task 'app.send'>" and repr(handles[:1]) == "<1 job of task 'app.send'>"
    with pytest.raises(IndexError):
        handles[3]


def test_handles_of_nothing_are_empty() -> None:
    handles: Handles[None] = Handles([], None, hf, send.signature)
    assert not handles and list(handles) == []
