"""hf.webhooks as callers use it: what it refuses, its messages, and what it does when a reply is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import ConfigurationError, Event, Holdfast, InvalidPayload, Retry, UnknownEndpoint, UsageError
from holdfast.client.delivery import serve

URL = "https://example.org/hook"
UNKNOWN = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"


def test_reading_webhooks_registers_nothing_and_a_worker_that_serves_them_does() -> None:
    hf = Holdfast("postgresql://nowhere")
    assert hf.webhooks and not hf.registry.tasks
    serve(hf, hf.settings.with_(queues="mail"))
    assert not hf.registry.tasks
    with ThreadPoolExecutor(2) as threads:
        served = [*threads.map(lambda _: serve(hf, hf.settings), range(2))]
    assert [each.queue_list for each in served] == [["default", "webhooks"]] * 2
    assert list(hf.registry.tasks) == ["holdfast.webhook"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "http://example.org"}, "must begin with https://"),
        ({"url": 5}, "a webhook's URL must be a string, got a int"),
        ({"timeout": "x"}, "timeout must be a number of seconds, got 'x'"),
        ({"events": 5}, "events must be a list of types"),
        ({"url": "https://127.0.0.1/"}, "loopback"),
        ({"url": "https://me:pw@example.org/"}, "user or password"),
        ({"events": "order.paid"}, "events must be a list of types"),
        ({"events": ["order.paid", "a b"]}, "types such as"),
        ({"events": []}, "1 to 200 types"),
        ({"events": ["x\x00"]}, "NUL"),
        ({"prefix": "X_Y"}, "prefix"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 1e9}, "timeout"),
        ({"tenant": ""}, "a tenant must have 1 to 200"),
        ({"secret": ""}, "a secret must be a string"),
        ({"secret": "whsec_!!!"}, "base64"),
        ({"secret": "too short"}, "at least 16 characters"),
        ({"secret": "x" * 501}, "a secret must be a string"),
    ],
)
def test_an_endpoint_that_could_not_work_is_refused(hf: Holdfast, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        hf.webhooks.add(**({"url": URL} | options))
    assert "the database refused the job" not in str(refused.value)
    assert hf.webhooks.list() == []


def test_a_refused_secret_is_not_repeated(hf: Holdfast) -> None:
    for secret in ("whsec_hush-hush!", "hush-hush" * 100, "hush-hush\x00"):
        with pytest.raises(UsageError) as refused:
            hf.webhooks.add(URL, secret=secret)
        assert "hush" not in str(refused.value)


def test_an_endpoint_is_changed_in_what_is_given(hf: Holdfast) -> None:
    made = hf.webhooks.add(URL, tenant="acme", events=["a"], description="d")
    changed = hf.webhooks.update(made.id, url="https://example.com", events=None, timeout=5)
    assert (changed.url, changed.events, changed.timeout) == ("https://example.com/", None, 5)
    assert (changed.tenant, changed.description, changed.prefix) == ("acme", "d", "Holdfast")
    assert hf.webhooks.update(made.id, description=None).description is None
    with pytest.raises(UsageError, match="nothing to change"):
        hf.webhooks.update(made.id)


def test_an_endpoint_for_development_must_be_fit_for_more_before_it_is_no_longer(hf: Holdfast) -> None:
    made = hf.webhooks.add("http://127.0.0.1:8000/", dev=True)
    with pytest.raises(UsageError, match="must begin with https://"):
        hf.webhooks.update(made.id, dev=False)
    with pytest.raises(UsageError, match="loopback"):
        hf.webhooks.update(made.id, dev=False, url="https://127.0.0.1:8000/")
    assert hf.webhooks.update(made.id, dev=False, url=URL).dev is False


def test_an_endpoint_that_is_not_there_is_reported_as_such(hf: Holdfast) -> None:
    calls = hf.webhooks
    for call in (
        calls.get,
        calls.rotate,
        calls.enable,
        calls.disable,
        calls.remove,
        calls.test,
        lambda id_: calls.update(id_, timeout=1),
        lambda id_: calls.update(id_, url=URL),
    ):
        with pytest.raises(UnknownEndpoint, match=UNKNOWN):
            call(UNKNOWN)
        with pytest.raises(UsageError, match="is not an id"):
            call("x")


def test_a_disabled_endpoint_may_be_disabled_again(hf: Holdfast) -> None:
    made = hf.webhooks.add(URL)
    hf.webhooks.disable(made.id, "first")
    hf.webhooks.disable(made.id, "second")
    assert hf.webhooks.get(made.id).disabled_reason == "first"


@pytest.mark.parametrize("keep", [-1, float("nan"), float("inf")])
def test_how_long_old_secrets_are_kept_is_a_time(hf: Holdfast, keep: float) -> None:
    made = hf.webhooks.add(URL)
    with pytest.raises(UsageError, match="keep_old_for"):
        hf.webhooks.rotate(made.id, keep_old_for=keep)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Event("", {}), "type"),
        (Event("a b", {}), "no spaces"),
        (Event("é", {}), "ASCII"),
        (Event("a", {}, tenant=""), "a tenant"),
        (Event("a", {}, id="x"), "is not an id"),
        (Event("a", {}, key=""), "key"),
        (Event("a", {}, key="a\nb"), "control characters"),
        (Event("a", object()), "cannot be encoded as JSON"),
        (Event("a", {"a": float("nan")}), "nan"),
        (Event("a", "\ud800"), "an event's body"),
        (Event("a", b"\xff"), "not UTF-8"),
        (Event("a", b"\x00"), "NUL"),
        (Event("a", "x" * 2_000_000), "more than the 1,048,576 allowed"),
    ],
)
def test_an_event_that_could_not_be_sent_is_refused(hf: Holdfast, event: Event, words: str) -> None:
    hf.webhooks.add(URL)
    with pytest.raises(UsageError, match=words):
        hf.webhooks.publish(None, event)
    assert hf.webhooks.deliveries() == []


def test_a_priority_that_is_none_is_refused(hf: Holdfast) -> None:
    with pytest.raises(UsageError, match="priority must be 0"):
        hf.webhooks.publish(None, Event("a", {}), priority=7)


def test_the_largest_body_is_carried_whole(hf: Holdfast) -> None:
    hf.webhooks.add(URL)
    body = b'"' + b'\\"' * 500_000 + b'"'
    hf.webhooks.publish(None, Event("a", body))
    assert hf.webhooks.deliveries()[0].body.encode() == body
    with pytest.raises(InvalidPayload):
        hf.webhooks.publish(None, Event("a", body * 2))


@pytest.mark.parametrize("key", [None, "k"])
def test_a_publish_whose_reply_was_lost_is_repeated_safely(hf: Holdfast, key: str | None) -> None:
    hf.webhooks.add(URL)
    hf.webhooks.add(URL)
    call = hf.webhooks._publishing(Event("a", {}, key=key), 2)
    assert call.repeat is not None
    first = hf.database.sync_pool.run(call)
    second = hf.database.sync_pool.run(call.repeat())
    assert (second.event, sorted(second.deliveries)) == (first.event, sorted(first.deliveries))
    assert len(first.deliveries) == len(hf.webhooks.deliveries()) == 2


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ({"status": "failed"}, "PENDING, DELIVERED or FAILED"),
        ({"endpoint": "x"}, "is not an id"),
        ({"since": datetime(2026, 1, 1)}, "time zone"),
        ({"color": "red"}, "filtered by"),
    ],
)
def test_deliveries_are_filtered_by_values_that_exist(hf: Holdfast, which: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        hf.webhooks.deliveries(**which)


def test_everything_is_not_sent_again_by_mistake(hf: Holdfast) -> None:
    with pytest.raises(UsageError, match="no deliveries selected"):
        list(hf.webhooks.redeliver_all(tenant=None))
    assert list(hf.webhooks.redeliver_all(since=datetime(2026, 1, 1, tzinfo=UTC))) == []


def test_the_policy_is_what_was_set(hf: Holdfast) -> None:
    hf.webhooks.add(URL)
    assert hf.webhooks.retry.max_attempts == 10
    assert [hf.webhooks.retry.delay(n) for n in (1, 2, 9)] == [5, 300, 86_400]
    hf.webhooks.retry = Retry.fixed(60, max_attempts=3)
    hf.webhooks.publish(None, Event("a", {}))
    assert hf.webhooks.deliveries()[0].max_attempts == 3
    serve(hf, hf.settings)
    assert hf.registry.tasks["holdfast.webhook"].describe()["max_attempts"] == 3
    with pytest.raises(ConfigurationError, match="retry must be a policy"):
        hf.webhooks.retry = 3  # type: ignore[assignment]


def test_seconds_that_are_no_number_are_refused(hf: Holdfast) -> None:
    wrong: Any = "1"
    with pytest.raises(UsageError, match="keep_old_for must be a number of seconds, got '1'"):
        hf.webhooks.rotate(UNKNOWN, keep_old_for=wrong)
    with pytest.raises(UsageError, match="timeout must be a number of seconds, got '1'"):
        hf.webhooks.update(UNKNOWN, timeout=wrong)


@pytest.mark.parametrize("event", ["order.paid", None, {"type": "order.paid"}, b"x"])
def test_what_is_no_event_is_refused_by_name(hf: Holdfast, event: Any) -> None:
    with pytest.raises(UsageError, match=r"an event must be an Event, as in Event\("):
        hf.webhooks.publish(None, event)
