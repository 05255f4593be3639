"""`holdfast webhooks`: endpoints, their secrets, deliveries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from holdfast import DeliveryInfo, Endpoint, Event, Holdfast
from holdfast.cli import render
from tests.support.program import as_json, holdfast, started

Sql = Callable[..., list[tuple[Any, ...]]]
UNKNOWN = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"


@pytest.fixture
def endpoint(hf: Holdfast) -> Endpoint:
    return hf.webhooks.add("https://example.org/hook", tenant="acme", events=["order.*"])


def publish(hf: Holdfast, number: int = 1) -> list[str]:
    return [
        hf.webhooks.publish(None, Event("order.paid", {"n": n}, tenant="acme")).deliveries[0] for n in range(number)
    ]


def fail_all(sql: Sql, outcome: str = "dead") -> None:
    response = {"http_status": 500, "response_headers": {"x": "y"}, "response_body": "bm8="}
    error = {"type": "NotDelivered", "message": "it said no", "details": {"response": response}}
    sql("select fail(id, token, %s::jsonb, null, %s) from claim('w', '{webhooks}', 100)", [json.dumps(error), outcome])


def test_an_endpoint_is_added_and_its_secret_shown_once(dsn: str, hf: Holdfast) -> None:
    result = holdfast(
        dsn,
        "webhooks",
        "add",
        "https://Example.org",
        "--tenant",
        "acme",
        "--event",
        "order.*",
        "--event",
        "a",
        "--prefix",
        "BPC",
        "--timeout",
        "10s",
        "--description",
        "shop",
    )
    assert result.exit_code == 0
    secret = result.stdout.splitlines()[-1]
    assert secret.startswith("whsec_")
    (made,) = hf.webhooks.list()
    assert (made.url, made.tenant, made.events, made.prefix) == (
        "https://example.org/",
        "acme",
        ["order.*", "a"],
        "BPC",
    )
    assert (made.timeout, made.description, made.dev) == (10, "shop", False)
    for command in (["webhooks"], ["webhooks", "list"], ["webhooks", "show", made.id]):
        for form in ([], ["--json"]):
            output = holdfast(dsn, *command, *form)
            assert output.exit_code == 0 and secret not in output.output and made.id in output.stdout


def test_a_secret_of_ones_own_comes_from_standard_input(dsn: str, sql: Sql) -> None:
    made = as_json(
        holdfast(
            dsn, "webhooks", "add", "https://example.org", "--secret-stdin", "--json", stdin="my own, long enough\n"
        )
    )
    assert made["secret"] == "my own, long enough"
    assert sql("select secrets #>> '{0,secret}' from webhook_endpoints") == [("plain:my own, long enough",)]
    rotated = as_json(
        holdfast(dsn, "webhooks", "rotate", made["id"], "--secret-stdin", "--json", stdin="newer and as long\n")
    )
    assert rotated["secret"] == "newer and as long"
    refused = holdfast(dsn, "webhooks", "rotate", made["id"], "--secret-stdin", stdin="\n")
    assert refused.exit_code == 2 and "a secret" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["http://example.org"], "must begin with https://"),
        (["https://10.0.0.1"], "private address"),
        (["https://example.org", "--event", "*"], "types such as"),
        (["https://example.org", "--prefix", "a b"], "prefix"),
        (["https://example.org", "--timeout", "1h"], "timeout"),
        (["https://example.org", "--timeout", "long"], "--timeout must be a length of time"),
    ],
)
def test_an_endpoint_that_could_not_work_is_refused(dsn: str, hf: Holdfast, arguments: list[str], words: str) -> None:
    result = holdfast(dsn, "webhooks", "add", *arguments)
    assert result.exit_code == 2 and words in result.stderr
    assert hf.webhooks.list() == []


def test_endpoints_are_listed_and_shown(dsn: str, hf: Holdfast, endpoint: Endpoint) -> None:
    assert "there are no endpoints" in holdfast(dsn, "webhooks", "--tenant", "other").stdout
    (listed,) = as_json(holdfast(dsn, "webhooks", "--tenant", "acme", "--json"))
    assert (listed["id"], listed["secrets"], "secret" in listed) == (endpoint.id, 1, False)
    assert "order.*" in holdfast(dsn, "webhooks").stdout
    hf.webhooks.disable(endpoint.id, "too slow")
    shown = holdfast(dsn, "webhooks", "show", endpoint.id).stdout
    assert "too slow" in shown and "X-Holdfast-" in shown
    assert "disabled" in holdfast(dsn, "webhooks", "list").stdout


def test_an_endpoint_is_changed_and_keeps_the_rest(dsn: str, hf: Holdfast, endpoint: Endpoint) -> None:
    def change(*options: str) -> Any:
        return as_json(holdfast(dsn, "webhooks", "update", endpoint.id, "--json", *options))

    changed = change(
        "--url",
        "http://127.0.0.1:9/x",
        "--dev",
        "--prefix",
        "BPC",
        "--timeout",
        "10s",
        "--event",
        "a",
        "--event",
        "b.*",
        "--description",
        "shop",
    )
    now = hf.webhooks.get(endpoint.id)
    assert (now.url, now.dev, now.prefix, now.timeout) == ("http://127.0.0.1:9/x", True, "BPC", 10)
    assert (now.events, now.description, now.tenant) == (["a", "b.*"], "shop", "acme")
    assert changed["id"] == endpoint.id and "secret" not in changed
    assert change("--all-events", "--description", "")["events"] is None
    assert hf.webhooks.get(endpoint.id).description is None
    change("--url", "https://example.org/", "--no-dev")
    assert not hf.webhooks.get(endpoint.id).dev and hf.webhooks.get(endpoint.id).prefix == "BPC"
    assert holdfast(dsn, "webhooks", "update", endpoint.id, "--timeout", "5s").stdout.startswith("changed endpoint")


@pytest.mark.parametrize(
    ("options", "words"),
    [([], "nothing to change"), (["--event", "a", "--all-events"], "either"), (["--url", "http://a.org"], "https://")],
)
def test_a_change_that_makes_no_sense_is_refused(dsn: str, endpoint: Endpoint, options: list[str], words: str) -> None:
    result = holdfast(dsn, "webhooks", "update", endpoint.id, *options)
    assert result.exit_code == 2 and words in result.stderr


def test_a_secret_is_rotated(dsn: str, hf: Holdfast, endpoint: Endpoint, sql: Sql) -> None:
    result = holdfast(dsn, "webhooks", "rotate", endpoint.id, "--keep-old", "2d")
    secret = result.stdout.strip()
    assert secret.startswith("whsec_") and secret != endpoint.secret
    assert hf.webhooks.get(endpoint.id).secrets == 2
    ((left,),) = sql("select extract(epoch from old_secrets_until - clock()) / 86400 from webhook_endpoint_state")
    assert 1.9 < left <= 2
    until = hf.webhooks.get(endpoint.id).old_secrets_until
    assert until is not None and f"valid until {render.when(until)}" in " ".join(result.stderr.split())
    assert "no longer valid" in holdfast(dsn, "webhooks", "rotate", endpoint.id, "--keep-old", "0").stderr
    assert hf.webhooks.get(endpoint.id).secrets == 1


@pytest.mark.parametrize("command", ["show", "rotate", "test", "enable", "disable", "remove"])
def test_an_endpoint_that_is_not_there_is_reported_as_such(dsn: str, hf: Holdfast, command: str) -> None:
    result = holdfast(dsn, "webhooks", command, UNKNOWN)
    assert result.exit_code == 2 and f"there is no endpoint {UNKNOWN}" in result.stderr
    assert "is not an id" in holdfast(dsn, "webhooks", command, "x").stderr


def test_endpoints_are_disabled_enabled_and_removed(dsn: str, hf: Holdfast, endpoint: Endpoint) -> None:
    assert "disabled" in holdfast(dsn, "webhooks", "disable", endpoint.id, "--reason", "moves").stdout
    assert hf.webhooks.get(endpoint.id).disabled_reason == "moves"
    assert "enabled" in holdfast(dsn, "webhooks", "enable", endpoint.id).stdout
    assert hf.webhooks.get(endpoint.id).enabled
    assert holdfast(dsn, "webhooks", "remove", endpoint.id, stdin="n\n").exit_code == 1
    assert len(hf.webhooks.list()) == 1
    assert holdfast(dsn, "webhooks", "remove", endpoint.id, "--yes").exit_code == 0
    assert hf.webhooks.list() == []


def test_deliveries_are_listed_and_shown(dsn: str, hf: Holdfast, endpoint: Endpoint, sql: Sql) -> None:
    (failed,) = publish(hf)
    fail_all(sql)
    (waiting,) = publish(hf)

    def ids(*options: str) -> list[str]:
        return [it["id"] for it in as_json(holdfast(dsn, "webhooks", "deliveries", "--json", *options))]

    assert ids() == [waiting, failed]
    assert (
        ids("--status", "FAILED")
        == ids("--status", "FAILED", "--endpoint", endpoint.id, "--tenant", "acme")
        == [failed]
    )
    assert ids("--status", "failed") == [failed]
    assert ids("--type", "order.paid", "--since", "1h") == [waiting, failed]
    assert ids("--until", "1h") == ids("--since", "2100-01-01") == ids("--tenant", "other") == []
    assert ids("--event", str(hf.webhooks.delivery(failed).event)) == [failed]  # type: ignore[union-attr]
    listed = holdfast(dsn, "webhooks", "deliveries", "--limit", "2")
    assert "it said no" in listed.stdout and "newest 2" in listed.stderr
    assert "no deliveries match" in holdfast(dsn, "webhooks", "deliveries", "--tenant", "other").stdout
    shown = holdfast(dsn, "webhooks", "delivery", failed).stdout
    assert all(text in shown for text in ("500", '{"n":0}', '{"x":"y"}', "it said no", "1 of 10"))
    assert as_json(holdfast(dsn, "webhooks", "delivery", failed, "--json"))["http_status"] == 500
    unknown = holdfast(dsn, "webhooks", "delivery", UNKNOWN)
    assert unknown.exit_code == 1 and "there is no delivery" in unknown.stderr
    odd = holdfast(dsn, "webhooks", "deliveries", "--since", "yesterday")
    assert odd.exit_code == 2 and "2h (ago)" in odd.stderr


def test_why_names_the_status_and_leaves_out_the_response(dsn: str, hf: Holdfast, endpoint: Endpoint, sql: Sql) -> None:
    (id_,) = publish(hf)
    fail_all(sql)
    result = holdfast(dsn, "why", id_)
    assert result.exit_code == 0 and "it said no" in result.stdout and "500" in result.stdout
    assert f"holdfast webhooks delivery {id_}" in " ".join(result.stdout.split())
    assert "bm8=" not in result.stdout and "x y" not in result.stdout
    (reason,) = as_json(holdfast(dsn, "why", id_, "--json"))["reasons"]
    assert reason["facts"]["error"]["details"]["response"]["response_body"] == "bm8="


def test_deliveries_go_again(dsn: str, hf: Holdfast, endpoint: Endpoint, sql: Sql) -> None:
    failed = publish(hf, 3)
    fail_all(sql)
    (report,) = as_json(holdfast(dsn, "webhooks", "redeliver", failed[0], "--json"))
    assert report == {"id": failed[0], "outcome": "retried", "delivery": failed[0]}
    result = holdfast(dsn, "webhooks", "redeliver", UNKNOWN)
    assert result.exit_code == 1 and "there is no such delivery" in result.stderr
    every = ["webhooks", "redeliver", "--all", "--endpoint", endpoint.id, "--since", "1h"]
    assert holdfast(dsn, *every, stdin="n\n").exit_code == 1
    assert holdfast(dsn, *every, "--yes").stdout == "2 deliveries will be sent\n"
    assert [it.status for it in hf.webhooks.deliveries()] == ["PENDING"] * 3
    assert holdfast(dsn, *every, "--yes").stdout == "0 deliveries will be sent\n"


def test_deliveries_to_a_disabled_endpoint_are_left_alone(dsn: str, hf: Holdfast, endpoint: Endpoint, sql: Sql) -> None:
    failed = publish(hf, 2)
    fail_all(sql)
    hf.webhooks.disable(endpoint.id)
    result = holdfast(dsn, "webhooks", "redeliver", *failed)
    assert result.exit_code == 1 and result.stdout == "0 deliveries will be sent\n"
    assert "disabled" in result.stderr and "holdfast webhooks enable" in " ".join(result.stderr.split())
    assert [each.outcome for each in hf.webhooks.redeliver_all(endpoint=endpoint.id)] == ["disabled"] * 2
    assert sql("select count(*) from dead") == [(2,)]
    hf.webhooks.enable(endpoint.id)
    assert holdfast(dsn, "webhooks", "redeliver", *failed).exit_code == 0


@pytest.mark.parametrize(
    "arguments", [[], ["--all", "--yes"], [UNKNOWN, "--all"], [UNKNOWN, "--tenant", "acme"], ["x"]]
)
def test_which_deliveries_go_again_must_be_given(dsn: str, hf: Holdfast, arguments: list[str]) -> None:
    assert holdfast(dsn, "webhooks", "redeliver", *arguments).exit_code == 2


def test_an_endpoint_is_tested_through_a_worker_for_all_queues(dsn: str, hf: Holdfast, tmp_path: Path) -> None:
    unreachable = hf.webhooks.add("http://127.0.0.1:9/", dev=True)
    (tmp_path / "plain_app.py").write_text("from holdfast import Holdfast\nhf = Holdfast()\n")
    with started(dsn, "worker", "plain_app:hf", "--all-queues", folder=tmp_path) as program:
        result = holdfast(dsn, "webhooks", "test", unreachable.id)
    assert result.exit_code == 1, program.output
    assert result.stdout.startswith("failed: no connection to 127.0.0.1:9")
    assert "no tasks are registered" in program.output


def test_without_a_worker_a_test_says_what_it_waits_for(dsn: str, hf: Holdfast, endpoint: Endpoint) -> None:
    result = holdfast(dsn, "webhooks", "test", endpoint.id, "--wait", "0")
    assert result.exit_code == 0 and "no live worker serves queue webhooks" in result.stdout
    assert "holdfast-jobs[webhooks]" in result.stdout
    assert holdfast(dsn, "webhooks", "test", endpoint.id, "--wait", "0.2s").exit_code == 1
    waiting: DeliveryInfo = hf.webhooks.deliveries()[0]
    assert (waiting.event_type, waiting.status) == ("holdfast.test", "PENDING")


def test_a_key_is_made_that_seals() -> None:
    key = holdfast("", "webhooks", "key").stdout.strip()
    Fernet(key)
    assert key != holdfast("", "webhooks", "key").stdout.strip()
