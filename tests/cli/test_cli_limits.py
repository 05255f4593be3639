"""`holdfast limits`, `pause` and `resume`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, LimitInfo, UsageError
from holdfast.cli import options
from tests.support.program import as_json, holdfast, ran

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def domains(sql: Sql) -> None:
    """Two jobs for each domain, of which one is full and one rests; a source with a rate and an open breaker."""
    code = json.dumps({"concurrency": 2, "rate": None})
    sql("insert into limit_rules values ('domain:{domain}', 'domain:%%', %s, '{}', now())", [code])
    sql("select set_limit('source:ebay', '{\"rate\": 30, \"breaker_after\": 5}', 'ann')")
    sql("select make_limits('{domain:full,domain:rests,source:ebay}')")
    sql("update limits set running = 2 where key = 'domain:full'")
    opened = "open_until = now() + interval '1 h', failure_streak = 6"
    sql(f"update limits set tokens = -5, tokens_at = now(), {opened} where key = 'source:ebay'")
    sql("insert into throttled values ('domain:full', 'acme', 1234, now())")


def test_limits_are_listed_with_how_much_is_in_use(dsn: str, domains: None) -> None:
    header, *lines = holdfast(dsn, "limits").stdout.splitlines()
    assert header.split() == ["key", "use", "rate", "breaker", "paused", "throttled", "note"]
    assert [line.split()[0] for line in lines] == ["domain:full", "domain:rests", "source:ebay"]
    assert lines[0].split() == ["domain:full", "2", "of", "2", "1,234"]
    assert re.search(
        r"source:ebay +0 +30/min, next in 1[12] s +open until [-\d: ]+ \(6 failures\) +set by ann", lines[2]
    ), lines[2]


def test_filters_and_a_limit(dsn: str, domains: None) -> None:
    def keys(*arguments: str) -> list[str]:
        return [each["key"] for each in as_json(holdfast(dsn, "limits", "--json", *arguments))]

    assert keys("--prefix", "domain:") == ["domain:full", "domain:rests"]
    assert keys("--prefix", "domain_") == []
    assert keys("--busy") == ["domain:full", "source:ebay"]
    assert keys("--limit", "1") == ["domain:full"]
    assert "first 1; --limit shows more" in holdfast(dsn, "limits", "--limit", "1").stderr
    assert holdfast(dsn, "limits", "--prefix", "x").stdout == "no key matches\n"


def test_an_empty_list_of_limits_says_so(dsn: str) -> None:
    assert "@hf.task(limits=[Limit(KEY, ...)])" in holdfast(dsn, "limits").stdout
    assert as_json(holdfast(dsn, "limits", "--json")) == []


def test_a_narrow_terminal_shows_everything_of_a_limit(dsn: str, sql: Sql, domains: None) -> None:
    sql("select pause('domain:full', 'ann@laptop', 'their server is on fire')")
    sql("select set_limit('domain:full', '{\"rate\": 5, \"per\": 1}', 'bob@desk')")
    shown = re.sub(r"\x1b\[[\d;]*m", "", ran(dsn, "limits", COLUMNS="80", FORCE_COLOR="1").stdout)
    first, *others = shown.splitlines()
    assert first.split() == ["domain:full", "2", "of", "2"]
    for part in (
        "rate 5/s",
        "paused by ann@laptop: their server is on fire",
        "throttled 1,234",
        "note set by bob@desk",
    ):
        assert any(part in line for line in others), part
    assert max(map(len, shown.splitlines())) <= 80


def test_set_changes_a_key_and_clear_takes_it_back(dsn: str, hf: Holdfast, domains: None) -> None:
    shown = holdfast(dsn, "limits", "set", "domain:full", "--concurrency", "4", "--rate", "30", "--by", "ann").stdout
    assert "2 of 4" in shown and "30/min" in shown and "set by ann" in shown
    (now,) = hf.limits.list("domain:full")
    assert (now.concurrency, now.rate, now.per, now.burst, now.changed_by) == (4, 30, 60, 1, "ann")
    document = as_json(holdfast(dsn, "limits", "set", "domain:full", "--burst", "5", "--json"))
    assert (document["keys"], document["change"], document["now"]["burst"]) == (1, {"burst": 5}, 5)
    assert "@" in document["now"]["changed_by"]
    assert (
        as_json(holdfast(dsn, "limits", "clear", "domain:full", "--only", "concurrency", "--json"))["now"][
            "concurrency"
        ]
        == 2
    )
    assert holdfast(dsn, "limits", "clear", "domain:full").stdout == "domain:full: cleared\n"
    (now,) = hf.limits.list("domain:full")
    assert (now.concurrency, now.rate, now.override) == (2, None, {})
    again = holdfast(dsn, "limits", "clear", "domain:full")
    assert (again.exit_code, again.stdout) == (1, "domain:full: nothing was set\n")


def test_set_changes_all_keys_of_a_rule(dsn: str, hf: Holdfast, domains: None) -> None:
    result = holdfast(dsn, "limits", "set", "domain:{domain}", "--concurrency", "7")
    assert result.stdout == "set for 2 keys of domain:{domain} and those to come\n"
    assert [each.concurrency for each in hf.limits.list("domain:")] == [7, 7]
    (rule,) = as_json(holdfast(dsn, "limits", "rules", "--json"))
    assert (rule["code"], rule["override"], rule["keys"]) == ({"concurrency": 2, "rate": None}, {"concurrency": 7}, 2)
    _, line = holdfast(dsn, "limits", "rules").stdout.splitlines()
    assert line.split()[:6] == ["domain:{domain}", "2", "concurrency", "2", "concurrency", "7"]


@pytest.mark.parametrize(
    ("option", "needed", "other"),
    [
        ("per", "rate", "rate"),
        ("burst", "rate", "rate"),
        ("breaker-pause", "breaker_after", "breaker-after"),
        ("breaker-cap", "breaker_after", "breaker-after"),
    ],
)
def test_a_value_that_changes_nothing_is_reported(
    dsn: str, sql: Sql, domains: None, option: str, needed: str, other: str
) -> None:
    words = f"warning: --{option} has no effect without {needed}; set it with --{other}"
    for key in ("domain:full", "domain:{domain}"):
        assert words in holdfast(dsn, "limits", "set", key, f"--{option}", "10").stderr, key
        both = holdfast(dsn, "limits", "set", key, f"--{option}", "10", f"--{other}", "2")
        assert "warning" not in both.stderr, both.stderr


def test_a_narrow_terminal_shows_everything_of_a_rule(dsn: str, sql: Sql) -> None:
    code = {
        "concurrency": 2,
        "rate": 30,
        "per": 60,
        "burst": 5,
        "breaker_after": 5,
        "breaker_pause": 300,
        "breaker_cap": 3600,
    }
    sql("insert into limit_rules values ('domain:{domain}', 'domain:%%', %s, '{}', now())", [json.dumps(code)])
    shown = re.sub(r"\x1b\[[\d;]*m", "", ran(dsn, "limits", "rules", COLUMNS="80", FORCE_COLOR="1").stdout)
    assert max(map(len, shown.splitlines())) <= 80
    assert "concurrency 2, rate 30, per 60, burst 5, breaker_after 5, breaker_pause 300, breaker_cap 3,600" in " ".join(
        shown.split()
    )


def test_a_tenant_has_a_weight(dsn: str) -> None:
    assert "weight 3" in holdfast(dsn, "limits", "set", "tenant:acme", "--weight", "3").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["domain:full"], "nothing to change; give an option, as in: holdfast limits set domain:full --concurrency 4"),
        (["domain:full", "--concurrency", "-1"], "error: concurrency must be 0 or more"),
        (["domain:full", "--weight", "2"], "error: only a tenant has a weight"),
        (
            ["domain:{host}", "--rate", "2"],
            "error: there is no rule domain:{host}; workers have registered domain:{domain}",
        ),
    ],
)
def test_a_change_that_cannot_work_is_exit_code_2(dsn: str, domains: None, arguments: list[str], words: str) -> None:
    result = holdfast(dsn, "limits", "set", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_a_breaker_is_reset_by_hand(dsn: str, hf: Holdfast, domains: None) -> None:
    assert holdfast(dsn, "limits", "reset", "source:ebay").stdout == "source:ebay: reset\n"
    assert hf.limits.list("source:ebay")[0].breaker == "closed"
    result = holdfast(dsn, "limits", "reset", "source:ebay", "--json")
    assert (result.exit_code, json.loads(result.stdout)["outcome"]) == (1, "was not open")


def test_wrong_counts_are_reported_and_repaired(dsn: str, domains: None) -> None:
    result = holdfast(dsn, "limits", "reconcile")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split() == ["domain:full", "2", "0"]
    found = {each["name"]: each for each in json.loads(holdfast(dsn, "doctor", "--json").stdout)["checks"]}["limits"]
    assert (found["level"], found["found"]) == (
        "warning",
        "1 key with a wrong count, 'domain:full' the first: 2 counted, 0 running",
    )
    assert found["advice"] == "correct it with: holdfast limits reconcile --repair"
    assert as_json(holdfast(dsn, "limits", "reconcile", "--repair", "--json")) == [
        {"key": "domain:full", "counted": 2, "actual": 0}
    ]
    assert holdfast(dsn, "limits", "reconcile").stdout == "every key counts as many jobs as run under it\n"


# -- pause and resume


def test_pause_and_resume(dsn: str, hf: Holdfast) -> None:
    result = holdfast(dsn, "pause", "domain:x", "--reason", "on fire", "--by", "ann")
    assert result.stdout == "domain:x is paused until it is resumed\n"
    assert "holdfast resume domain:x" in result.stderr
    (found,) = hf.limits.list("domain:x")
    assert (found.paused, found.paused_by, found.paused_reason, found.paused_until) == (True, "ann", "on fire", None)
    assert holdfast(dsn, "pause", "domain:x", "--for", "10m").stdout == (
        "domain:x is paused for 10 min; it was paused before\n"
    )
    (found,) = hf.limits.list("domain:x")
    assert found.paused_until and found.paused_at
    assert (found.paused_until - found.paused_at).total_seconds() == 600
    assert holdfast(dsn, "resume", "domain:x").stdout == "domain:x is resumed\n"
    assert hf.limits.list("domain:x") == [], "no job was claimed under it, and nothing is said of it any more"
    assert as_json(holdfast(dsn, "pause", "domain:x", "--json")) == {
        "key": "domain:x",
        "outcome": "paused",
        "seconds": None,
    }


def test_what_is_not_paused_is_exit_code_1_and_lists_what_is(dsn: str) -> None:
    holdfast(dsn, "pause", "tenant:acme")
    result = holdfast(dsn, "resume", "tenant:acm")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "tenant:acm was not paused; paused: tenant:acme" in result.stderr
    result = holdfast(dsn, "resume", "tenant:acm", "--json")
    assert (result.exit_code, json.loads(result.stdout)["outcome"]) == (1, "not paused")


def test_an_unknown_queue_or_task_is_paused_with_a_warning(dsn: str, sql: Sql) -> None:
    sql(
        "select register_worker('w', 'h', 1, '1', '{mail}', 1, "
        """'[{"name": "app.send", "queue": "mail", "max_attempts": 5, "retry": {}}]')"""
    )
    assert "warning: no worker has registered queue:mial yet; did you mean queue:mail?" in (
        holdfast(dsn, "pause", "queue:mial").stderr
    )
    assert "did you mean task:app.send?" in holdfast(dsn, "pause", "task:app.sent").stderr
    for key in ("queue:mail", "task:app.send", "tenant:new"):
        assert "warning" not in holdfast(dsn, "pause", key).stderr


def test_a_key_that_fits_nothing_is_changed_with_a_warning_and_what_may_have_been_meant(
    dsn: str, sql: Sql, domains: None
) -> None:
    sql("select enqueue('app.send', p_queue => 'visits', p_tenant => 'minnow')")
    for key, meant in {
        "visits": "; did you mean queue:visits?",
        "minnow": "; did you mean tenant:minnow?",
        "full": "; did you mean domain:full?",
        "visit": "; did you mean queue:visits?",
        "qqq": "; keys are queue:NAME, task:NAME, tenant:NAME, domain:{domain}",
    }.items():
        words = f"warning: {key} matches no declared limit, and no job has been claimed under it yet{meant}\n"
        assert words in holdfast(dsn, "limits", "set", key, "--concurrency", "1").stderr
        sql("delete from limit_settings where key = %s", [key])
        assert words in holdfast(dsn, "pause", key).stderr
    for key in ("domain:new", "domain:full", "source:ebay", "queue:visits"):
        assert "warning" not in holdfast(dsn, "pause", key).stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("90s", 90), ("10m", 600), ("10min", 600), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172_800)],
)
def test_lengths_of_time_are_written_as_people_do(text: str, expected: float) -> None:
    assert options.seconds(text, "--for") == expected


@pytest.mark.parametrize("text", ["", "soon", "10x", "m", "-5", "1h-", "5 apples"])
def test_a_length_of_time_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--for must be a length of time such as 90s, 10m, 1h30m or 2d"):
        options.seconds(text, "--for")


def test_a_pause_of_no_length_is_exit_code_2(dsn: str) -> None:
    result = holdfast(dsn, "pause", "queue:mail", "--for", "0s")
    assert result.exit_code == 2
    assert "error: a pause must be longer than 0" in result.stderr


# -- from Python


async def test_the_same_from_python(hf: Holdfast) -> None:
    assert hf.limits.set("k", concurrency=4, rate=30) == 1
    assert hf.limits.set("k", concurrency=None) == 1
    (found,) = await hf.limits.alist("k")
    assert isinstance(found, LimitInfo)
    assert (found.concurrency, found.rate, found.override) == (None, 30, {"rate": 30, "per": 60, "burst": 1})
    assert await hf.limits.aset("tenant:acme", weight=2, by="ann") == 1
    assert [(each.key, each.weight, each.changed_by) for each in hf.limits.list("tenant:")] == [
        ("tenant:acme", 2, "ann")
    ]
    assert (hf.limits.pause("k", reason="r", for_=60), await hf.limits.apause("k")) == (True, False)
    assert [each.key for each in hf.limits.list(busy=True)] == ["k"]
    assert (hf.limits.resume("k"), await hf.limits.aresume("k")) == (True, False)
    assert (hf.limits.reset_breaker("k"), await hf.limits.areset_breaker("k")) == (False, False)
    assert (hf.limits.clear("k"), await hf.limits.aclear("k")) == (1, 0)
    with pytest.raises(UsageError, match="rate must be above 0"):
        hf.limits.set("k", rate=0)
    with pytest.raises(UsageError, match=r"nothing to change; give a value, as in limits\.set\('k', concurrency=4\)"):
        hf.limits.set("k")
    await hf.aclose()


def test_a_key_is_shown_with_what_its_breaker_did(dsn: str, sql: Sql, domains: None) -> None:
    at = "clock() - interval '90 s'"
    sql(f"insert into breaker_events (key, at, event, failures) values ('source:ebay', {at}, 'opened', 5)")
    assert holdfast(dsn, "limits", "reset", "source:ebay", "--by", "ada", "--reason", "it is back").exit_code == 0
    shown = holdfast(dsn, "limits", "show", "source:ebay").stdout
    assert (
        re.search(r"rate +30/min", shown)
        and re.search(r"^burst +\d+$", shown, re.M)
        and re.search(r"reset .* 6 +9\d s .*ada +it is back", shown)
    ), shown
    assert re.search(r"opened .* 5", shown)
    found = as_json(holdfast(dsn, "limits", "show", "source:ebay", "--json"))
    assert [each["event"] for each in found["breaker"]] == ["reset", "opened"]
    assert found["limit"]["key"] == "source:ebay"


def test_a_key_that_is_unknown_is_not_shown(dsn: str, domains: None) -> None:
    unknown = holdfast(dsn, "limits", "show", "source:ebya")
    assert unknown.exit_code == 1 and "source:ebya matches no declared limit" in unknown.stderr
    quiet = holdfast(dsn, "limits", "show", "domain:rests")
    assert quiet.exit_code == 0 and "did not open in 30 days" in quiet.stdout
