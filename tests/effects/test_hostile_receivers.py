"""Receivers that mean harm: they reach nothing inside, cost no memory, delay no sender beyond the deadline."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import os
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.effects.address import Address, refusal
from holdfast.effects.resolve import Lookup
from holdfast.effects.send import MOST_BODY, MOST_HEADERS, Answer, DeliveryError, Sender
from tests.support.pace import slower
from tests.support.receivers import (
    INSIDE,
    NAME,
    OK,
    PUBLIC,
    Behaviour,
    Receiver,
    certificate,
    receiving,
    repeating,
    request,
    respond_with,
    rule,
)

HEAD = b"HTTP/1.1 200 OK\r\n"
GIGABYTE = b"Content-Length: 1000000000\r\n\r\n"
CHUNK = b"x" * 65_536
# How each address hides 127.0.0.1, in a URL or behind a name.
DISGUISES = [
    "127.0.0.1",
    "0.0.0.0",  # noqa: S104
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b:1::127.0.0.1",
    "2002:7f00:1::",
    "2001:0:7f00:1::80ff:fffe",
    "169.254.169.254",
    "fd00:ec2::254",
]
SPELLINGS = [
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "0x7f000001",
    "0x7f.1",
    "127.1",
    "127.0.0.1.",
    "\uff11\uff12\uff17.0.0.1",
    "0",
]


@pytest.fixture
async def inside() -> AsyncIterator[Receiver]:
    """A server that must not be reached: it responds to every connection, and counts them."""
    async with receiving(respond_with(OK), host=INSIDE) as receiver:
        yield receiver


@contextmanager
def flat(most: int = 3_000_000) -> Iterator[None]:
    """Check that memory rises by no more than this meanwhile, and that no file or socket stays open."""
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
    if files:
        assert len(os.listdir("/proc/self/fd")) <= files


def named(*addresses: str) -> Lookup:
    async def lookup(host: str, port: int) -> list[Address]:
        return [ipaddress.ip_address(each) for each in addresses]

    return lookup


async def post_to(behave: Behaviour, timeout: float) -> tuple[Answer | DeliveryError, float, Receiver]:
    """Return the result of one post to such a receiver, how long it took, and the receiver."""
    with flat():
        async with receiving(behave) as receiver, Sender(rule=rule) as sender:
            began = time.perf_counter()
            try:
                end: Answer | DeliveryError = await sender.post(receiver.url, b"{}", {}, timeout, dev=True)
            except DeliveryError as error:
                end = error
            took = time.perf_counter() - began
            await asyncio.wait_for(receiver.closed.wait(), 5)
    return end, took, receiver


@pytest.mark.parametrize(
    ("behave", "deadline", "came"),
    [
        pytest.param(repeating(HEAD + GIGABYTE, b"x", 1.0), 1.5, True, id="body, a byte each second"),
        pytest.param(repeating(HEAD + b"\r\n", b"x", 0.2), 0.5, True, id="body without length"),
        pytest.param(
            repeating(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.2), 0.5, True, id="chunks"
        ),
        pytest.param(repeating(HEAD + b"X-Slow: ", b"x", 0.2), 0.5, False, id="header"),
        pytest.param(repeating(b"HTTP/1.1 200 ", b"O", 0.2), 0.5, False, id="first line"),
        pytest.param(repeating(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.001), 0.5, False, id="continue"),
        pytest.param(repeating(b"", b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n", 0.001), 0.5, False, id="hints"),
    ],
)
async def test_a_drip_ends_at_the_deadline(behave: Behaviour, deadline: float, came: bool) -> None:
    end, took, receiver = await post_to(behave, deadline)
    assert isinstance(end, DeliveryError)
    assert end.code == "TIMEOUT"
    assert deadline <= took < deadline + 0.5 * slower()
    if came:
        assert end.answer is not None
        assert (end.answer.status, end.answer.body.strip(b"x")) == (200, b"")
        assert 1 <= len(end.answer.body) <= 3
        assert str(end).startswith(f"the receiver took longer than {deadline:g} s: its response, 200 OK, was")
    else:
        assert str(end) == f"the receiver did not respond within {deadline:g} s"
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        pytest.param(GIGABYTE, CHUNK, id="length"),
        pytest.param(b"\r\n", CHUNK, id="no length"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + CHUNK + b"\r\n", id="chunks"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 1000, id="small chunks"),
        pytest.param(b"Content-Encoding: gzip\r\n" + GIGABYTE, CHUNK, id="called gzip"),
    ],
)
async def test_a_body_without_end_is_cut_and_its_connection_closed(head: bytes, piece: bytes) -> None:
    end, took, receiver = await post_to(repeating(HEAD + head, piece), 10)
    assert isinstance(end, Answer)
    assert (end.status, end.body, end.cut) == (200, b"x" * MOST_BODY, True)
    assert took < 2 * slower()
    assert receiver.connections == 1


async def test_after_a_cut_body_the_next_post_has_a_connection_of_its_own() -> None:
    async with receiving(repeating(HEAD + GIGABYTE, CHUNK)) as receiver, Sender(rule=rule) as sender:
        for _ in range(3):
            assert (await sender.post(receiver.url, b"{}", {}, 5, dev=True)).cut
    assert receiver.connections == 3


@pytest.mark.parametrize("size", [MOST_BODY - 1, MOST_BODY, MOST_BODY + 1])
async def test_a_body_at_the_edge_of_the_cap_is_kept_whole_and_one_byte_more_is_cut(size: int) -> None:
    response = HEAD + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
    async with receiving(respond_with(response)) as receiver, Sender(rule=rule) as sender:
        end = await sender.post(receiver.url, b"{}", {}, 5, dev=True)
    assert (len(end.body), end.cut) == (min(size, MOST_BODY), size > MOST_BODY)


@pytest.mark.parametrize(
    "coding", [b"Content-Encoding: gzip", b"Content-Encoding: deflate", b"Content-Encoding: br, gzip"]
)
async def test_a_gzip_bomb_stays_compressed(coding: bytes) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    assert len(bomb) < MOST_BODY
    end, _, receiver = await post_to(
        respond_with(HEAD + coding + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb, b""), 10
    )
    assert isinstance(end, Answer)
    assert end.body == bomb
    assert "accept-encoding: identity\r\n" in receiver.requests[0][0].lower()


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(repeating(HEAD, b"X-Many: " + b"y" * 100 + b"\r\n"), id="many headers"),
        pytest.param(repeating(HEAD + b"X-Long: ", b"y" * 1000), id="one header"),
        pytest.param(repeating(b"", b"HTTP/1.1 200 " + b"O" * 1000), id="first line"),
        pytest.param(repeating(HEAD, b" folded\r\n"), id="folded"),
        pytest.param(repeating(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * 1000), id="chunk size"),
        pytest.param(repeating(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-T: y\r\n" * 99), id="trailers"),
        pytest.param(repeating(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100), id="hints"),
    ],
)
async def test_what_goes_before_a_body_is_cut_where_it_has_no_end(behave: Behaviour) -> None:
    end, took, receiver = await post_to(behave, 20)
    assert isinstance(end, DeliveryError)
    assert end.code == "BAD_ANSWER"
    assert len(str(end)) < 500
    assert took < 1.0 * slower()  # far from the deadline
    assert receiver.connections == 1


async def test_many_floods_at_once_cost_little_memory() -> None:
    flood = repeating(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20_000)
    with flat(12_000_000):
        async with receiving(flood) as receiver, Sender(rule=rule) as sender:
            posts = [sender.post(receiver.url, b"{}", {}, 20, dev=True) for _ in range(10)]
            ends = await asyncio.gather(*posts, return_exceptions=True)
    assert {end.code for end in ends if isinstance(end, DeliveryError)} == {"BAD_ANSWER"}
    assert len(receiver.requests) == 10


async def test_a_flood_on_a_kept_connection_is_an_error_and_not_repeated() -> None:
    async def turning(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receiver: Receiver) -> None:
        await request(reader, receiver)
        writer.write(OK)
        await repeating(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)(reader, writer, receiver)

    async with receiving(turning) as receiver, Sender(rule=rule) as sender:
        await sender.post(receiver.url, b"{}", {}, 5, dev=True)
        with pytest.raises(DeliveryError, match="sent more than 128 kB without a complete response"):
            await sender.post(receiver.url, b"{}", {}, 20, dev=True)
    assert (receiver.connections, len(receiver.requests)) == (1, 2)


@pytest.mark.parametrize(
    "response",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00\xff\x16\x03\x01" * 50 + b"\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    ],
)
async def test_a_response_that_is_not_http_is_a_readable_error(response: bytes) -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receiver: Receiver) -> None:
        await request(reader, receiver)
        writer.write(response)
        await writer.drain()
        writer.write_eof()
        await reader.read()

    end, took, _ = await post_to(behave, 5)
    assert isinstance(end, DeliveryError)
    assert end.code in ("BAD_ANSWER", "DISCONNECTED")
    assert str(end).isprintable()
    assert took < 4


async def test_a_receiver_that_never_reads_ends_at_the_deadline() -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receiver: Receiver) -> None:
        await asyncio.Event().wait()

    body = bytes(30_000_000)
    async with receiving(deaf) as receiver, Sender(rule=rule) as sender:
        began = time.perf_counter()
        with pytest.raises(DeliveryError) as error:
            await sender.post(receiver.url, body, {}, 0.7, dev=True)
        assert time.perf_counter() - began < 0.7 + 0.5 * slower()
    assert error.value.code == "TIMEOUT"


async def test_headers_of_the_response_are_capped_and_fit_into_json() -> None:
    lines = b"X-Bad: \xff\xfe\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
    lines += b"".join(b"X-%d: %s\r\n" % (n, b"v" * 200) for n in range(100))
    async with (
        receiving(respond_with(HEAD + lines + b"Content-Length: 0\r\n\r\n")) as receiver,
        Sender(rule=rule) as sender,
    ):
        end = await sender.post(receiver.url, b"{}", {}, 5, dev=True)
    assert sum(len(name) + len(value) for name, value in end.headers.items()) <= MOST_HEADERS
    assert end.headers["set-cookie"] == "a=1, b=2"
    assert end.headers["x-bad"].encode("utf-8") == b"\\xff\\xfe"
    assert end.headers["x-0"] == "v" * 200


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_inward_is_not_followed(status: int, inside: Receiver) -> None:
    response = f"HTTP/1.1 {status} X\r\nLocation: {inside.url}?secret=1\r\nContent-Length: 0\r\n\r\n".encode()
    async with receiving(respond_with(response)) as receiver, Sender(rule=rule) as sender:
        with pytest.raises(DeliveryError) as error:
            await sender.post(receiver.url, b"{}", {}, 5, dev=True)
    assert error.value.code == "REDIRECT"
    assert str(error.value) == (
        f"the receiver returned {status}, a redirect to '{inside.url}'; redirects are not followed: "
        "change the endpoint's URL"
    )
    assert (len(receiver.requests), inside.connections) == (1, 0)


async def test_a_refresh_or_an_upgrade_leads_nowhere(inside: Receiver) -> None:
    length = b"Content-Length: 0\r\n\r\n"
    leading = [
        b"HTTP/1.1 200 OK\r\nRefresh: 0; url=%s\r\n" % inside.url.encode() + length,
        b'HTTP/1.1 200 OK\r\nAlt-Svc: h2="%s:%d"\r\n' % (INSIDE.encode(), inside.port) + length,
        b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n" + length,
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ]
    async with receiving(respond_with(*leading)) as receiver, Sender(rule=rule) as sender:
        for _ in range(2):
            assert (await sender.post(receiver.url, b"{}", {}, 5, dev=True)).status == 200
        for code in ("HTTP_407", "HTTP_101"):
            with pytest.raises(DeliveryError) as error:
                await sender.post(receiver.url, b"{}", {}, 1, dev=True)
            assert error.value.code == code
    assert inside.connections == 0


@pytest.mark.parametrize("address", DISGUISES)
async def test_no_address_inside_is_dialled_whether_written_or_behind_a_name(address: str, inside: Receiver) -> None:
    literal = f"[{address}]" if ":" in address else address
    async with Sender(rule=rule, lookup=named(address)) as sender:
        for host, dev in ((literal, False), (literal, True), (NAME, False), (NAME, True)):
            with pytest.raises(DeliveryError) as error:
                await sender.post(f"https://{host}:{inside.port}/", b"{}", {}, 2, dev)
            assert error.value.code == ("DNS" if host == NAME else "ADDRESS_REFUSED")
            assert host == NAME or "webhooks are sent to public addresses only" in str(error.value)
            assert host == literal or address not in str(error.value)
    assert inside.connections == 0


@pytest.mark.parametrize("host", SPELLINGS)
async def test_no_spelling_of_an_address_inside_is_dialled(host: str, inside: Receiver) -> None:
    async with Sender(rule=rule) as sender:
        for dev in (False, True):
            with pytest.raises(DeliveryError) as error:
                await sender.post(f"https://{host}:{inside.port}/", b"{}", {}, 2, dev)
            assert error.value.code == "ADDRESS_REFUSED"
            assert "is an address in an unusual spelling" in str(error.value)
    assert inside.connections == 0


async def test_the_listener_inside_would_see_what_the_rule_lets_through(inside: Receiver) -> None:
    """Otherwise the tests above would prove nothing."""

    def anything(address: Address, dev: bool) -> str | None:
        return None

    reached = 0
    for address in ("127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0"):  # noqa: S104
        literal = f"[{address}]" if ":" in address else address
        async with Sender(rule=anything, lookup=named(address)) as sender:
            for host in (literal, NAME):
                assert (await sender.post(f"http://{host}:{inside.port}/", b"{}", {}, 5, True)).status == 200
                reached += 1
    assert len(inside.requests) == reached == 6


async def test_a_name_that_turns_private_between_check_and_dial_is_dialled_as_it_was_checked(
    tmp_path: Path, inside: Receiver
) -> None:
    server, client = certificate(tmp_path, NAME)
    lookups = 0

    async def rebinding(host: str, port: int) -> list[Address]:
        nonlocal lookups
        lookups += 1
        return [ipaddress.ip_address(PUBLIC if lookups == 1 else INSIDE)]

    async with receiving(respond_with(OK), tls=server) as receiver:
        async with Sender(rule=rule, lookup=rebinding, tls=client) as sender:
            for _ in range(3):
                await sender.post(receiver.at(NAME), b"{}", {}, 5)
        assert (lookups, len(receiver.requests)) == (1, 3)
        async with Sender(rule=rule, lookup=rebinding, tls=client) as sender:
            with pytest.raises(DeliveryError) as error:
                await sender.post(f"https://{NAME}:{inside.port}/", b"{}", {}, 5)
    assert error.value.code == "DNS"
    assert inside.connections == 0


async def test_the_address_is_looked_at_once_more_when_the_socket_is_made(inside: Receiver) -> None:
    looks: list[str] = []

    def turning(address: Address, dev: bool) -> str | None:
        looks.append(str(address))
        return None if len(looks) == 1 else refusal(address)

    for host, code in ((NAME, "DNS"), (INSIDE, "ADDRESS_REFUSED")):
        looks.clear()
        async with Sender(rule=turning, lookup=named(INSIDE)) as sender:
            with pytest.raises(DeliveryError) as error:
                await sender.post(f"https://{host}:{inside.port}/", b"{}", {}, 5)
        assert error.value.code == code
    assert inside.connections == 0


async def test_of_several_addresses_only_those_that_are_public_are_dialled(inside: Receiver) -> None:
    async with receiving(respond_with(OK)) as receiver:
        for addresses in (["127.0.0.1", "::1", PUBLIC, "10.0.0.1"], [PUBLIC, "127.0.0.1"]):
            async with Sender(rule=rule, lookup=named(*addresses)) as sender:
                assert (await sender.post(receiver.at(NAME), b"{}", {}, 5, dev=True)).status == 200
                with pytest.raises(DeliveryError) as error:  # no server listens at the public one
                    await sender.post(inside.at(NAME), b"{}", {}, 5, dev=True)
                assert error.value.code == "CONNECT"
    assert inside.connections == 0


async def test_a_connection_made_for_development_serves_no_other_endpoint(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, NAME)
    sender = Sender(lookup=named(INSIDE), tls=client)
    async with receiving(respond_with(OK), host=INSIDE, tls=server) as receiver, sender:
        await sender.post(receiver.at(NAME), b"{}", {}, 5, dev=True)
        with pytest.raises(DeliveryError) as error:
            await sender.post(receiver.at(NAME), b"{}", {}, 5, dev=False)
    assert error.value.code == "DNS"
    assert len(receiver.requests) == 1


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch, inside: Receiver) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{INSIDE}:{inside.port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with receiving(respond_with(OK)) as receiver, Sender(rule=rule) as sender:
        assert (await sender.post(receiver.url, b"{}", {}, 5, dev=True)).status == 200
    assert (receiver.connections, inside.connections) == (1, 0)


async def test_cookies_are_not_kept() -> None:
    cookie = HEAD + b"Set-Cookie: session=1; Path=/\r\nContent-Length: 0\r\n\r\n"
    async with receiving(respond_with(cookie)) as receiver, Sender(rule=rule) as sender:
        for _ in range(2):
            await sender.post(receiver.url, b"{}", {}, 5, dev=True)
    assert len(receiver.requests) == 2
    assert not any("cookie" in head.lower() for head, _ in receiver.requests)


async def test_many_hostile_receivers_at_once_keep_memory_flat_and_honest_ones_served() -> None:
    kinds = [
        repeating(HEAD + GIGABYTE, b"x", 1.0),
        repeating(HEAD + GIGABYTE, CHUNK),
        repeating(HEAD, b"X-Many: y\r\n" * 100),
        repeating(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10),
    ]
    with flat(10_000_000):
        async with (
            Sender(rule=rule) as sender,
            receiving(respond_with(OK)) as honest,
            receiving(kinds[0]) as a,
            receiving(kinds[1]) as b,
            receiving(kinds[2]) as c,
            receiving(kinds[3]) as d,
        ):
            posts = [sender.post(each.url, b"{}", {}, 1.0, dev=True) for each in (a, b, c, d) * 10]
            ends = await asyncio.gather(*posts, sender.post(honest.url, b"{}", {}, 5, dev=True), return_exceptions=True)
    assert all(isinstance(end, Answer | DeliveryError) for end in ends)
    assert isinstance(ends[-1], Answer)
    assert sum(isinstance(end, Answer) for end in ends) == 11


def test_the_tests_dial_loopback_alone() -> None:
    assert all(ipaddress.ip_address(each).is_loopback for each in (PUBLIC, INSIDE))
    assert socket.gethostbyname("localhost").startswith("127.")
