"""Sentry: what a failed attempt sends, recorded by a transport that sends nothing; scrubbed, grouped, bounded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from holdfast import Cancel, ConfigurationError, Dead, Fail, Holdfast, Retry, RetryLater, Snooze
from holdfast.model.clock import Clock
from holdfast.model.failure import Failure
from holdfast.model.job import Job
from holdfast.model.outcome import describe
from holdfast.telemetry.sentry import PER_MINUTE, Reporter, values_of
from holdfast.worker.prefetch import Lease
from tests.support.running import ended, until, working
from tests.support.scrub_corpus import PARTS

Sql = Callable[..., list[tuple[Any, ...]]]
CHECKOUT = Path(__file__).parents[2]
DSN = "https://0123456789abcdef0123456789abcdef@127.0.0.1:9/1"

NAME, URL = "Ada Lovelace", "https://a.example/x?key=1"


class Kept(Transport):
    """A transport that keeps events in place of sending them."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        # As bytes and back, so that the test checks what would be sent.
        self.events.append(json.loads(envelope.items[0].payload.get_bytes()))


@pytest.fixture
def kept(hf: Holdfast) -> Kept:
    transport = Kept()
    hf.registry.on_failure.append(Reporter(DSN, transport=transport))
    return transport


def failure(
    error: Exception, *, task: str = "t", payload: str = "{}", attempt: int = 1, ending: str = "error"
) -> Failure:
    row = (
        "00000000-0000-7000-8000-000000000001",
        1,
        task,
        payload,
        attempt,
        5,
        "mail",
        2,
        "acme",
        0.0,
        None,
        None,
        0,
        None,
        None,
    )
    return Failure(Job(row, Lease(1, 1, 0.0, 60.0)), error, describe(error, 1000), ending)


def event_text(event: dict[str, Any]) -> str:
    """Return an event as text, without random ids, times and local paths, which may hold any digits."""
    drawn = ("event_id", "timestamp", "release", "server_name")
    kept = {name: value for name, value in event.items() if name not in drawn}
    kept["contexts"] = {name: value for name, value in event["contexts"].items() if name != "trace"}
    return json.dumps(kept, ensure_ascii=False).replace(str(CHECKOUT), "")


def sent(error: Exception, **more: Any) -> dict[str, Any]:
    transport = Kept()
    Reporter(DSN, transport=transport)(failure(error, **more))
    (event,) = transport.events
    return event


async def test_failed_attempts_are_captured_and_a_dead_job_leaves_a_breadcrumb(hf: Holdfast, kept: Kept) -> None:
    @hf.task(name="flaky", retry=Retry.fixed(0.01, max_attempts=2))
    async def flaky(customer: str) -> None:
        local = "a local variable"
        raise ConnectionError(f"no answer for {customer} at {URL}" + local[:0])

    async with working(hf):
        handle = flaky.using(tenant="acme").enqueue(NAME)
        await ended(hf, handle.id)
    first, last = kept.events
    assert (first["level"], last["level"]) == ("warning", "error")
    assert first["tags"] == {"task": "flaky", "queue": "default", "outcome": "error", "tenant": "acme"}
    assert first["contexts"]["job"] == {"job_id": handle.id, "attempt": 1, "max_attempts": 2, "outcome": "error"}
    assert first["exception"]["values"][-1]["value"] == "no answer for [payload] at https://a.example/x?[query]"
    assert first["fingerprint"] == last["fingerprint"] == ["holdfast", "flaky", "ConnectionError"]
    assert "breadcrumbs" not in first or not first["breadcrumbs"]["values"]
    (crumb,) = last["breadcrumbs"]["values"]
    assert (crumb["message"], crumb["data"]["job_id"], crumb["data"]["attempt"]) == ("job dead", handle.id, 2)
    frames = first["exception"]["values"][-1]["stacktrace"]["frames"]
    assert frames[-1]["function"] == "flaky" and not any("vars" in frame for frame in frames)
    for secret in (*NAME.split(), URL):
        assert secret not in json.dumps(kept.events), secret


async def test_outcomes_that_are_no_failure_are_not_captured(hf: Holdfast, kept: Kept, sql: Sql) -> None:
    calls: list[str] = []

    @hf.task()
    async def says(what: str) -> None:
        calls.append(what)
        raise {
            "snooze": Snooze(60),
            "cancel": Cancel("no"),
            "dead": Dead("x", block="k"),
            "fail": Fail("x"),
            "later": RetryLater(60),
        }[what]

    async with working(hf):
        for what in ("snooze", "cancel", "dead", "fail", "later"):
            says.enqueue(what)
        await until(lambda: len(calls) == 5 and len(kept.events) == 3)
    assert sorted(event["tags"]["outcome"] for event in kept.events) == ["dead", "error", "failed"]


@pytest.mark.parametrize(("text", "gone"), PARTS, ids=[text[:40] for text, _ in PARTS])
def test_nothing_private_is_sent(text: str, gone: list[str]) -> None:
    class Refused(Exception):
        code = text

    secret_local = text  # noqa: F841 - must not be sent
    try:
        try:
            raise KeyError(text)
        except KeyError as cause:
            raise Refused(text, [text], {"more": text}) from cause
    except Refused as error:
        error.add_note(text)
        event = sent(error, payload=json.dumps({"quoted": text}))
    assert len(event["exception"]["values"]) == 2
    body = event_text(event)
    # The class is made in this file, whose lines around it quote nothing of the corpus.
    assert [part for part in gone if part in body] == [], body


@pytest.mark.parametrize("payload", ['{"name": "Zoë O\'Neil", "n": 4242424}', '{"a": [{"b": "Zoë O\'Neil"}, 4242424]}'])
def test_payload_values_are_removed_from_texts_whatever_they_look_like(payload: str) -> None:
    event = sent(ValueError("Zoë O'Neil", "Zoë O'Neil owes 4242424"), payload=payload)
    text = event_text(event)
    assert "Neil" not in text and "4242424" not in text and "[payload] owes [payload]" in text


@pytest.mark.parametrize("payload", ["", "not json", b"\xff", None, "[" * 50])
def test_a_payload_that_cannot_be_read_is_no_obstacle(payload: Any) -> None:
    assert isinstance(values_of(payload), list)


def test_failures_of_a_task_with_the_same_error_are_one_group() -> None:
    def group(error: Exception, task: str = "t") -> tuple[str, ...]:
        return tuple(sent(error, task=task)["fingerprint"])

    assert group(ValueError("a")) == group(ValueError("b"))
    assert (
        len({group(ValueError("a")), group(KeyError("a")), group(ValueError("a"), "u"), group(Fail("a", code="X"))})
        == 4
    )


def test_a_flood_of_the_same_failure_is_a_few_events() -> None:
    now = 100.0
    transport = Kept()
    reporter = Reporter(DSN, transport=transport, clock=Clock(lambda: now))
    for _ in range(500):
        reporter(failure(ValueError("a")))
    reporter(failure(KeyError("another")))
    assert len(transport.events) == PER_MINUTE + 1
    now += 61
    reporter(failure(ValueError("a")))
    assert transport.events[-1]["extra"]["left_out_before"] == 500 - PER_MINUTE


async def test_a_listener_that_breaks_is_no_concern_of_the_job(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    def broken(failure: Failure) -> None:
        raise RuntimeError("out of order")

    hf.registry.on_failure.append(broken)

    @hf.task()
    async def fails() -> None:
        raise Fail("x")

    async with working(hf):
        info = await ended(hf, fails.enqueue().id)
    assert info.last_error is not None and info.last_error["type"] == "Fail"
    assert "failure not reported" in caplog.text


def test_an_error_of_a_child_process_is_sent_without_frames() -> None:
    from holdfast.model.outcome import Outcome
    from holdfast.worker.execute import FailedInChild

    details = {"type": "Boom", "message": "token=abcdef", "traceback": 'File "x.py", line 1\nBoom: ann@example.org'}
    error = FailedInChild(Outcome("id", 1, "error", error=details))
    one = failure(error)
    transport = Kept()
    Reporter(DSN, transport=transport)(Failure(one.job, error, details, "error"))
    (value,) = transport.events[0]["exception"]["values"]
    assert value["type"] == "Boom" and "x.py" in value["value"]
    assert "abcdef" not in value["value"] and "ann@" not in value["value"]


def test_a_dsn_that_is_none_is_refused_without_quoting_it() -> None:
    with pytest.raises(ConfigurationError, match="sentry_dsn") as refused:
        Reporter("ftp://s3cret@nowhere/x")
    assert "s3cret" not in str(refused.value)


async def test_the_setting_reports_for_all_that_a_worker_runs(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = Kept()
    made = Reporter.__init__
    monkeypatch.setattr(Reporter, "__init__", lambda self, dsn: made(self, dsn, transport=transport))

    @hf.task(name="fails")
    async def fails() -> None:
        raise Fail("x")

    async with working(hf, sentry_dsn=DSN):
        await ended(hf, fails.enqueue().id)
    assert [event["transaction"] for event in transport.events] == ["fails"]
