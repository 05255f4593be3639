"""Scrubbing: of a corpus of URLs, tokens and personal data nothing is left, and what helps to find an error stays."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from scrub_corpus import KEPT, PARTS

from holdfast.telemetry import logs
from holdfast.telemetry.scrub import LONGEST, scrub

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
    ["a" * 10**6, "https://" * 50_000, "'pin': '" + "\\" * 10**5, '"token": "' * 10**4, "-----BEGIN A-----" * 10**4,
     *(each * 10**5 for each in ("@", "1", "1 ", "a=", "a.b@", ":", "password=", "+1", "a%40b.", "1:", "[", "?a=",
                                 "password", "DE89 ", "auth-", "Key (", "<pin>", "%3A%2F%2F", "--pin ", "cookie:",
                                 "\\", "'", "pin:\\\"", "-pass", "."))],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_no_text_makes_it_slow(hostile: str) -> None:
    began = time.process_time()
    assert len(scrub(hostile)) <= LONGEST * 2
    assert time.process_time() - began < 2


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
        record.created = 0.0  # any digits may stand in the time of day, and in the way to this file
    lines = [formatter.format(record).replace(str(CHECKOUT), "") for record in caplog.records]
    for number, (text, gone) in enumerate(PARTS):
        for line in lines[2 * number : 2 * number + 2]:
            assert [part for part in gone if part in line] == [], (text, line)
