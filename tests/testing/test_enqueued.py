"""assert_enqueued and its family: jobs are matched as they were enqueued, and a failure shows what there is."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import ANY

import psycopg
import pytest

from holdfast import InvalidPayload, Status, Task, UsageError
from holdfast.testing import Kit


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Parcel:
    weight: float
    size: Size = Size.SMALL


@pytest.fixture
def send(kit: Kit) -> Task[Any, Any]:
    @kit.hf.task(name="mail.send", queue="mail", priority=1)
    async def send(to: str, subject: str = "hello", copies: int = 1) -> None: ...

    return send


def test_a_job_is_found_by_some_of_its_arguments_by_place_or_by_name(kit: Kit, send: Task[Any, Any]) -> None:
    job = send.enqueue("ada@example.org", copies=2)
    for found in (
        kit.assert_enqueued(send),
        kit.assert_enqueued("mail.send"),
        kit.assert_enqueued(send, "ada@example.org"),
        kit.assert_enqueued(send, copies=2),
        kit.assert_enqueued(send, subject="hello"),  # the handler's own default
        kit.assert_enqueued("mail.send", to="ada@example.org"),
        kit.assert_enqueued(send, ANY, copies=2),
    ):
        assert [each.id for each in found] == [job.id]


def test_arguments_are_compared_as_they_arrive(kit: Kit) -> None:
    @kit.hf.task()
    async def ship(parcel: Parcel, at: datetime, route: tuple[str, ...]) -> None: ...

    at = datetime(2030, 5, 1, 12, tzinfo=UTC)
    ship.enqueue(Parcel(1.5, Size.LARGE), at, ("a", "b"))
    kit.assert_enqueued(ship, Parcel(1.5, Size.LARGE), at, ("a", "b"))
    kit.assert_enqueued(ship, {"weight": 1.5, "size": "l"}, route=["a", "b"])
    kit.refute_enqueued(ship, Parcel(1.5, Size.SMALL))


def test_options_are_written_as_for_the_enqueue(kit: Kit, send: Task[Any, Any]) -> None:
    at = datetime(2035, 1, 1, tzinfo=UTC)
    send.using(tenant="acme", queue="bulk", priority=3, delay=60, max_attempts=7, dedupe="o-42").enqueue("a")
    send.using(run_at=at).enqueue("b")
    kit.assert_enqueued(send.using(tenant="acme"), "a")
    kit.assert_enqueued(send.using(queue="bulk", priority=3), "a")
    kit.assert_enqueued(send.using(delay=60, max_attempts=7), "a")
    kit.assert_enqueued(send.using(dedupe="o-42"), "a")
    kit.assert_enqueued(send.using(run_at=at + timedelta(seconds=0.9)), "b")
    for other in (send.using(delay=62), send.using(tenant="other"), send.using(dedupe="o-43"), send.using(priority=0)):
        kit.refute_enqueued(other)
    kit.refute_enqueued(send.using(run_at=at + timedelta(seconds=2)))
    kit.tolerance = timedelta(seconds=3)
    kit.assert_enqueued(send.using(run_at=at + timedelta(seconds=2)), count=1)


def test_what_is_missing_is_shown_beside_what_is_there_nearest_first(kit: Kit, send: Task[Any, Any]) -> None:
    @kit.hf.task(name="count")
    async def count(n: int) -> None: ...

    count.enqueue(1)
    send.using(tenant="acme").enqueue("bob@example.org", "hi")
    send.using(delay=60).enqueue("ada@example.org", "hi")
    with pytest.raises(AssertionError) as raised:
        kit.assert_enqueued(send.using(delay=90), "ada@example.org", "hi")
    assert str(raised.value).splitlines() == [
        "no job was enqueued that fits mail.send(to='ada@example.org', subject='hi') delay=90",
        "3 enqueued in this test, nearest first:",
        "  mail.send(to='ada@example.org', subject='hi') queue=mail queued due in 60 s",
        "      delay is 60 s, not 90 s",
        "  mail.send(to='bob@example.org', subject='hi') queue=mail tenant=acme queued",
        "      to is 'bob@example.org', not 'ada@example.org'",
        "      delay is 0 s, not 90 s",
        "  count(n=1) queue=default queued",
    ]


def test_a_long_list_and_long_arguments_are_cut(kit: Kit, send: Task[Any, Any]) -> None:
    send.enqueue_many([("x" * 500,)] * 12)
    with pytest.raises(AssertionError) as raised:
        kit.assert_enqueued(send, "y")
    lines = str(raised.value).splitlines()
    assert lines[-1] == "  ... and 2 more"
    assert max(map(len, lines)) < 150


def test_no_enqueue_at_all_is_reported_as_such(kit: Kit, send: Task[Any, Any]) -> None:
    with pytest.raises(AssertionError, match="nothing was enqueued in this test"):
        kit.assert_enqueued(send)
    kit.refute_enqueued(send)
    kit.refute_enqueued()


def test_a_count_is_exact(kit: Kit, send: Task[Any, Any]) -> None:
    send.enqueue_many(["a", "b", "b"])
    assert len(kit.assert_enqueued(send, "b", count=2)) == 2
    kit.assert_enqueued(send, "c", count=0)
    with pytest.raises(AssertionError, match=r"3 jobs fit, not 2: mail\.send\(\)"):
        kit.assert_enqueued(send, count=2)
    with pytest.raises(AssertionError, match=r"1 job fits, not 2: mail\.send\(to='a'\)"):
        kit.assert_enqueued(send, "a", count=2)


def test_a_count_that_the_handler_could_mean_is_refused(kit: Kit) -> None:
    @kit.hf.task()
    async def tally(count: int) -> None: ...

    tally.enqueue(3)
    kit.assert_enqueued(tally, 3)
    with pytest.raises(UsageError, match="has its own parameter 'count'"):
        kit.assert_enqueued(tally, count=3)


def test_refuting_shows_what_was_enqueued(kit: Kit, send: Task[Any, Any]) -> None:
    send.enqueue("a")
    with pytest.raises(AssertionError, match=r"(?s)1 job was enqueued that fits mail\.send\(\).*to='a'"):
        kit.refute_enqueued(send)
    with pytest.raises(AssertionError, match="that fits any task"):
        kit.refute_enqueued()


def test_a_job_that_has_run_was_enqueued_all_the_same(kit: Kit, send: Task[Any, Any]) -> None:
    send.enqueue("a")
    kit.drain()
    assert [job.status for job in kit.assert_enqueued(send, "a")] == [Status.SUCCEEDED]
    with pytest.raises(AssertionError, match="queue=mail succeeded"):
        kit.refute_enqueued(send)
    assert kit.waiting() == []


def test_all_enqueued_is_in_order(kit: Kit, send: Task[Any, Any]) -> None:
    for to in "cab":
        send.using(priority=0 if to == "b" else 2).enqueue(to)
    assert [job.payload["to"] for job in kit.all_enqueued()] == ["c", "a", "b"]
    assert [job.payload["to"] for job in kit.all_enqueued(send, "a")] == ["a"]


def test_arguments_that_the_handler_does_not_take_are_an_error_of_the_test(kit: Kit, send: Task[Any, Any]) -> None:
    with pytest.raises(InvalidPayload, match="unexpected keyword argument 'too'"):
        kit.refute_enqueued(send, too="a")
    with pytest.raises(UsageError, match="arguments go by name"):
        kit.refute_enqueued("mail.send", "a")
    with pytest.raises(UsageError, match="on_conflict is not stored"):
        kit.refute_enqueued(send.using(on_conflict="raise"))


def test_uncommitted_jobs_are_not_enqueued_and_the_message_says_so(kit: Kit, send: Task[Any, Any]) -> None:
    with psycopg.connect(kit.dsn) as conn:
        send.using(conn=conn).enqueue("a")
        kit.refute_enqueued(send)
        with pytest.raises(AssertionError, match="a transaction is still open"):
            kit.assert_enqueued(send, "a")
        kit.assert_enqueued(send.using(conn=conn), "a")  # through the connection itself it is there
        conn.rollback()
    with pytest.raises(UsageError, match="must not be an async connection"):
        kit.assert_enqueued(send.using(conn=psycopg.AsyncConnection.__new__(psycopg.AsyncConnection)))
    with pytest.raises(AssertionError, match=r"nothing was enqueued in this test$"):
        kit.assert_enqueued(send)
