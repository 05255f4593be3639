"""Scrubbing: of a corpus of URLs, tokens and personal data nothing is left, and what helps to find an error stays."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest

from holdfast.telemetry import logs
from holdfast.telemetry.scrub import LONGEST, scrub
from tests.support.scrub_corpus import KEPT, PARTS

NASTY = [
    "\x1b]0;pwned\x07\x1b[2J",
    "\x9b2J\x9d0;pwned\x9c",
    "\u202egnp.exe\u2066",
    "a\rFORGED",
    "a\nFORGED",
    "abc\x08\x08",
    "\x7f",
    "a\u2028FORGED",
    "\x85FORGED",
    "\U000e0041\U0010ffff",
    "\u200b\ufeff",
]
CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize(("text", "gone"), PARTS, ids=[text[:40] for text, _ in PARTS])
def test_nothing_private_is_left_of_a_text(text: str, gone: list[str]) -> None:
    assert [part for part in gone if part not in text] == []
    left = scrub(text)
    assert [part for part in gone if part in left] == [], left


@pytest.mark.parametrize(("text", "gone"), PARTS, ids=[text[:40] for text, _ in PARTS])
@pytest.mark.parametrize("frame", ["{}", "ValueError: {}", "({!r},)", "a\n  {}\nb", '{{"message": "{}"}}'])
def test_nothing_private_is_left_whatever_stands_around_it(text: str, gone: list[str], frame: str) -> None:
    left = scrub(frame.format(text))
    assert [part for part in gone if part in left] == [], left


@pytest.mark.parametrize("text", KEPT)
def test_what_helps_to_find_an_error_stays(text: str) -> None:
    assert scrub(text) == text


def test_host_and_path_of_a_url_stay() -> None:
    assert scrub("GET https://ann:pw@shop.example:8443/cart/7?user=ann failed") == (
        "GET https://shop.example:8443/cart/7?[query] failed"
    )


def test_values_that_are_known_are_taken_out_wherever_they_stand() -> None:
    assert scrub("no customer Ada Lovelace (Ada Lovelace)", ["Ada Lovelace"]) == "no customer [payload] ([payload])"


def test_it_can_be_done_twice() -> None:
    for text, _ in PARTS:
        assert scrub(scrub(text)) == scrub(text)


@pytest.mark.parametrize(
    "hostile",
    [
        "a" * 10**6,
        "https://" * 50_000,
        "'pin': '" + "\\" * 10**5,
        '"token": "' * 10**4,
        "-----BEGIN A-----" * 10**4,
        *(
            each * 10**5
            for each in (
                "@",
                "1",
                "1 ",
                "a=",
                "a.b@",
                ":",
                "password=",
                "+1",
                "a%40b.",
                "1:",
                "[",
                "?a=",
                "password",
                "DE89 ",
                "auth-",
                "Key (",
                "<pin>",
                "%3A%2F%2F",
                "--pin ",
                "cookie:",
                "\\",
                "'",
                'pin:\\"',
                "-pass",
                ".",
            )
        ),
    ],
    ids=lambda text: text[:12],
)
def test_no_text_makes_it_slow(hostile: str) -> None:
    began = time.process_time()
    assert len(scrub(hostile)) <= LONGEST * 2
    assert time.process_time() - began < 2


@pytest.mark.parametrize("hostile", ["x://a", "x://a@", "a.-x://", "%40password", "://ssn-"])
def test_it_is_cut_before_it_is_scrubbed(hostile: str) -> None:
    """The cost depends on what is kept, not on the input: a hundred times as much text takes less than ten times."""
    short, long = hostile * (3000 // len(hostile)), hostile * (300_000 // len(hostile))
    costs = []
    for text in (short, long):
        began = time.process_time()
        for _ in range(20):
            assert len(scrub(text, limit=2000)) < 2100
        costs.append(time.process_time() - began)
    assert costs[1] < 10 * max(costs[0], 0.01)


def test_urls_within_urls_cost_no_more_than_their_length() -> None:
    def cost(text: str) -> float:
        began = time.process_time()
        for _ in range(5):
            scrub(text)
        return time.process_time() - began

    assert cost("x://a" * 4000) < 8 * max(cost("x://a" * 1000), 0.005), (
        "four times the text, not sixteen times the work"
    )


@pytest.mark.parametrize("place", range(1950, 2050, 7))
def test_a_secret_that_the_limit_cuts_in_two_is_still_removed(place: int) -> None:
    for private in ("hunter2hunter2hunter2", "sk_live_4eC39HqLyjWDarjtT1zdp7dc"):
        text = "x" * (place - 9) + " password=" + private + " y" * 2000
        left = scrub(text, ["x y"], limit=2000)
        assert not any(private[:size] in left for size in range(6, len(private)))
        left = scrub("x" * place + private + "y" * 5000, [private], limit=2000)
        assert not any(private[:size] in left for size in range(6, len(private)))


def test_a_long_known_value_that_the_cut_parts_leaves_nothing() -> None:
    value = "".join(f"<{n}>" for n in range(20_000))
    left = scrub(f"{value} {value} {value}", [value], limit=2000)
    assert "<7>" not in left and left.startswith("[payload] ")
    assert scrub(f"{'x' * 2400} {value} {value}", [value], limit=2000).startswith("x" * 2000 + " ... ")


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize("nasty", NASTY)
def test_no_control_or_bidirectional_character_reaches_a_log_line(
    form: str, nasty: str, caplog: pytest.LogCaptureFixture
) -> None:
    formatter = logs.JsonLines() if form == "json" else logs.Console()
    logger = logs.get("worker")
    with caplog.at_level(logging.INFO, "holdfast"):
        logs.event(logger, logging.WARNING, "job error", job=nasty, error=f"ValueError: {nasty}")
        logger.warning("from a library: %s", nasty)
        try:
            raise ValueError(nasty)
        except ValueError:
            logger.exception("broken")
    lines = [formatter.format(record) for record in caplog.records]
    for line in lines:
        assert [c for c in line if not c.isprintable() and c != "\n"] == []
    assert "\n" not in lines[0] + lines[1] and not any(
        line.startswith("FORGED") for line in "".join(lines).splitlines()
    )
    if form == "json":
        assert json.loads(lines[0])["job"] == nasty


@pytest.mark.parametrize("text", ["plain é 漢 🙂", "a b", 'say "hi"'])
def test_printable_text_is_logged_as_it_is(text: str) -> None:
    assert logs.printable(text) == text and json.loads(logs.printable_json(json.dumps(text))) == text


@pytest.mark.parametrize("form", ["console", "json"])
def test_log_lines_of_errors_are_scrubbed(form: str, caplog: pytest.LogCaptureFixture) -> None:
    formatter = logs.JsonLines() if form == "json" else logs.Console()
    logger = logs.get("worker")
    with caplog.at_level(logging.INFO, "holdfast"):
        for text, _ in PARTS:
            logs.event(logger, logging.WARNING, "job error", job="j", error=f"ValueError: {text}")
            try:
                raise ValueError(text)
            except ValueError:
                logger.exception("broken", extra={"fields": {"job": "j"}})
    for record in caplog.records:
        record.created = 0.0  # the time of day and the path of this file may hold any digits
    lines = [formatter.format(record).replace(str(CHECKOUT), "") for record in caplog.records]
    for number, (text, gone) in enumerate(PARTS):
        for line in lines[2 * number : 2 * number + 2]:
            assert [part for part in gone if part in line] == [], (text, line)
