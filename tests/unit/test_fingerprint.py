"""Errors that differ only in their values are one group; different errors are not."""

from __future__ import annotations

import json
import random
import string
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.failure import fingerprint, normalised, top_frame
from holdfast.model.outcome import describe
from tests.support import pace

Make = Callable[[random.Random], str]


def word(r: random.Random) -> str:
    return "".join(r.choices(string.ascii_lowercase, k=r.randint(3, 9)))


def number(r: random.Random) -> str:
    return str(r.choice([r.randint(0, 9), r.randint(10, 10**9), round(r.uniform(0, 1000), 3), -r.randint(1, 99)]))


def id_(r: random.Random) -> str:
    return str(uuid.UUID(int=r.getrandbits(128)))


def hexed(r: random.Random) -> str:
    return f"{r.getrandbits(160):040x}"


def when(r: random.Random) -> datetime:
    return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=r.randint(0, 10**9))


def iso(r: random.Random) -> str:
    return when(r).isoformat(r.choice("T "))


def email(r: random.Random) -> str:
    return f"{word(r)}.{word(r)}+{number(r).strip('-')}@{host(r)}"


def host(r: random.Random) -> str:
    return ".".join([word(r) for _ in range(r.randint(1, 3))] + [r.choice(["com", "example", "co.uk", "io"])])


def url(r: random.Random) -> str:
    return f"https://{host(r)}/{word(r)}/{number(r)}?q={word(r)}&n={r.randint(1, 9)}"


def path(r: random.Random) -> str:
    return "/".join(["", word(r), word(r), f"{word(r)}{r.choice(['', '-1', '_22'])}.{r.choice(['csv', 'json'])}"])


def text(r: random.Random) -> str:
    return repr(" ".join(word(r) for _ in range(r.randint(1, 4))))


KINDS: dict[str, Make] = {
    "KeyError": text,
    "KeyError of a number": number,
    "unique": lambda r: (
        'duplicate key value violates unique constraint "users_email_key"\nDETAIL:  Key (email, tenant)='
        f"({email(r)}, {r.choice([word, number, id_])(r)}) already exists."
    ),
    "foreign key": lambda r: (
        'insert or update on table "orders" violates foreign key constraint "orders_user_fkey"\n'
        f'DETAIL:  Key (user_id)=({r.choice([number, id_, word])(r)}) is not present in table "users".'
    ),
    "syntax of a number": lambda r: (
        f"invalid input syntax for type integer: \"{word(r)}\"\nCONTEXT:  unnamed portal parameter $1 = '...'"
    ),
    "deadlock": lambda r: (
        f"deadlock detected\nDETAIL:  Process {r.randint(1, 99999)} waits for ShareLock on transaction "
        f"{r.randint(1, 9**9)}; blocked by process {r.randint(1, 99999)}.\nHINT:  See server log for query details."
    ),
    "connection": lambda r: (
        f'connection failed: connection to server at "10.0.{r.randint(0, 255)}.{r.randint(0, 255)}", port '
        f'{r.randint(1024, 65535)} failed: FATAL:  role "{word(r)}" does not exist'
    ),
    "server closed": lambda r: (
        f"consuming input failed: server closed the connection unexpectedly after {r.uniform(0, 100):.3f} s"
    ),
    "statement timeout": lambda r: f"canceling statement due to statement timeout after {r.randint(1, 9999)}ms",
    "urllib": lambda r: f"<urlopen error [Errno {r.randint(1, 200)}] Connection refused>",
    "HTTP status": lambda r: f"HTTP Error {r.choice([502, 503])}: Bad Gateway for {url(r)}",
    "aiohttp connect": lambda r: (
        f"Cannot connect to host {host(r)}:{r.choice([80, 443])} ssl:default "
        f"[Connect call failed ('{r.randint(1, 255)}.0.0.{r.randint(1, 255)}', {r.choice([80, 443])})]"
    ),
    "aiohttp status": lambda r: f"500, message='Internal Server Error', url={url(r)!r}",
    "name": lambda r: f"[Errno -2] Name or service not known: {host(r)}",
    "requests": lambda r: (
        f"HTTPSConnectionPool(host='{host(r)}', port=443): Max retries exceeded with url: /{word(r)}/{number(r)} "
        f"(Caused by NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x{r.getrandbits(48):012x}>'))"
    ),
    "certificate": lambda r: (
        f"certificate verify failed: Hostname mismatch, certificate is not valid for {host(r)!r}. (_ssl.c:1006)"
    ),
    "json": lambda r: f"Expecting value: line {r.randint(1, 99)} column {r.randint(1, 99)} (char {r.randint(0, 9999)})",
    "json, extra": lambda r: f"Extra data: line {r.randint(1, 9)} column {r.randint(1, 99)} (char {r.randint(0, 99)})",
    "decode": lambda r: (
        f"'utf-8' codec can't decode byte 0x{r.randint(128, 255):02x} in position {r.randint(0, 9999)}: "
        "invalid start byte"
    ),
    "validation": lambda r: (
        "1 validation error for Order\namount\n  Input should be a valid number [type=float_parsing, "
        f"input_value={text(r)}, input_type=str]\n    For further information visit {url(r)}"
    ),
    "msgspec": lambda r: f"Expected `int`, got `str` - at `$.items[{r.randint(0, 99)}].price`",
    "value": lambda r: f"invalid literal for int() with base 10: {text(r)}",
    "range": lambda r: f"{number(r)} is not between {number(r)} and {number(r)}",
    "index": lambda r: f"list index {r.randint(0, 99)} out of range for {[r.randint(0, 99) for _ in range(4)]}",
    "file": lambda r: f"[Errno 2] No such file or directory: {path(r)!r}",
    "file, unquoted": lambda r: f"cannot open {path(r)}: permission denied",
    "user": lambda r: f"user {r.choice([number, id_])(r)} of tenant {number(r)} is gone",
    "email": lambda r: f"mailbox {email(r)} is full",
    "hash": lambda r: f"checksum {hexed(r)} differs from {hexed(r)}",
    "etag": lambda r: f"object {path(r)} has changed: ETag {hexed(r)[:12]}0",
    "timeout": lambda r: f"Timeout on reading data from socket after {r.uniform(0, 100):.2f}s ({url(r)})",
    "task timeout": lambda r: f"task 'mail' ran longer than its timeout of {r.choice([1, 5.5, 30])} s",
    "expired": lambda r: f"token expired at {iso(r)}",
    "not before": lambda r: f"retry after {when(r):%a, %d %b %Y %H:%M:%S} GMT",
    "clock": lambda r: f"slot {when(r):%H:%M:%S} on {when(r):%Y-%m-%d} has passed",
    "object": lambda r: f"<app.models.Order object at 0x{r.getrandbits(48):x}> has no invoice",
    "lock": lambda r: f"could not lock invoice-{number(r)} within {r.uniform(0, 9):.1f} s",
    "payload": lambda r: f"cannot read {json.dumps({'id': r.randint(1, 99), 'to': email(r)})}",
    "dates": lambda r: f"{when(r)!r} is a holiday",
    "quota": lambda r: (
        f"quota exceeded: {r.randint(1, 10**6):,} of {r.randint(1, 10**6):,} bytes ({r.randint(1, 99)}%)"
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_messages_that_differ_in_their_values_are_normalised_alike(kind: str) -> None:
    r = random.Random(kind)
    found = {normalised(KINDS[kind](r)): 0 for _ in range(500)}
    assert len(found) == 1, sorted(found)[:5]


def test_forty_kinds_of_errors_are_forty_groups() -> None:
    r = random.Random(40)
    kinds = list(KINDS)
    assert len(kinds) == 40
    found = {
        fingerprint("t", {"type": kind, "message": KINDS[kind](r), "frame": "app.py:f"})
        for kind in r.choices(kinds, k=5000)
    }
    assert len(found) == 40


def test_different_errors_of_one_type_and_frame_stay_apart() -> None:
    messages = ("no such user 7", "no such order 7", "user 7 is blocked", "user 7 is blocked until 2026-01-02 10:00")
    assert len({fingerprint("t", {"type": "E", "message": each, "frame": "f"}) for each in messages}) == 4


@pytest.mark.parametrize("part", ["task", "type", "code", "frame"])
def test_task_type_code_and_frame_distinguish(part: str) -> None:
    def make(value: str) -> str:
        parts = {"task": "t", "type": "E", "code": "c", "frame": "f"} | {part: value}
        return fingerprint(parts.pop("task"), {**parts, "message": "m"})

    assert make("one") != make("two")


@given(st.text(max_size=300))
def test_any_message_has_a_fingerprint(message: str) -> None:
    found = fingerprint("t", {"message": message})
    assert len(found) == 16
    assert set(found) <= set(string.hexdigits.lower())


@pytest.mark.parametrize("part", ["'", "(", "a.", "1-", "\\'", "a@", "/", "Mon ", "1:", '"a', "a:/"])
def test_no_message_takes_long(part: str) -> None:
    began = time.perf_counter()
    normalised(part * (2000 // len(part)))
    assert time.perf_counter() - began < 1 * pace.slower()


def test_the_frame_is_the_last_one_in_the_users_code() -> None:
    def parse() -> None:
        json.loads("{")

    with pytest.raises(ValueError, match="Expecting") as caught:
        parse()
    frame = top_frame(caught.value.__traceback__)
    assert frame == f"{Path(__file__).name}:test_the_frame_is_the_last_one_in_the_users_code.<locals>.parse"
    assert describe(caught.value, 1000)["frame"] == frame


def test_an_error_without_a_traceback_has_no_frame() -> None:
    assert "frame" not in describe(ValueError("x"), 1000)
