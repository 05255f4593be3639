"""What is sent, what is kept of the response, and how connections are used."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import socket
import ssl
from pathlib import Path

import pytest
import uvloop

from holdfast import HoldfastError
from holdfast.effects.address import Address, refusal
from holdfast.effects.send import Answer, DeliveryError, Sender
from holdfast.effects.signature import new_secret, sign, verify
from holdfast.model.outcome import describe
from holdfast.settings import VERSION
from tests.support.receivers import INSIDE, NAME, OK, PUBLIC, certificate, receiving, request, respond_with, rule


class Zone:
    """A name server: each lookup returns the next of its addresses."""

    def __init__(self, *addresses: list[str]) -> None:
        self.addresses, self.lookups = list(addresses), 0

    async def __call__(self, host: str, port: int) -> list[Address]:
        address = self.addresses[min(self.lookups, len(self.addresses) - 1)]
        self.lookups += 1
        return [ipaddress.ip_address(each) for each in address]


async def failed(sender: Sender, url: str, timeout: float = 5, dev: bool = True, body: bytes = b"{}") -> DeliveryError:
    with pytest.raises(DeliveryError) as error:
        await sender.post(url, body, {}, timeout, dev)
    assert isinstance(error.value, HoldfastError)
    return error.value


async def test_the_body_and_headers_arrive_as_signed_and_the_response_comes_back() -> None:
    secret, body = new_secret(), '{"größe": 1}'.encode()
    headers = sign(body, secret, "evt_1", "d_1", "order.paid", 1_760_000_000, "BPC")
    async with receiving(respond_with(OK)) as receiver, Sender(rule=rule) as sender:
        response = await sender.post(receiver.url, body, headers, 5, dev=True)
    ((head, sent),) = receiver.requests
    lines = head.split("\r\n")
    got = dict(line.split(": ", 1) for line in lines[1:] if line)
    assert lines[0] == "POST /hook HTTP/1.1"
    assert sent == body
    assert verify(sent, got, secret, now=1_760_000_000).id == "evt_1"
    assert {name: got[name] for name in headers} == headers
    assert got["Host"] == f"{PUBLIC}:{receiver.port}"
    assert got["User-Agent"] == f"Holdfast/{VERSION}"
    assert got["Content-Type"] == "application/json"
    assert got["Accept-Encoding"] == "identity"
    assert (response.status, response.body, response.cut) == (200, b"fine", False)
    assert response.headers == {"content-type": "text/plain", "content-length": "4"}
    assert 0 < response.seconds < 5


async def test_headers_of_the_caller_stand_in_place_of_the_usual_ones() -> None:
    async with receiving(respond_with(OK)) as receiver, Sender(rule=rule) as sender:
        await sender.post(receiver.url, b"<a/>", {"content-type": "application/xml"}, 5, dev=True)
    assert receiver.requests[0][0].lower().count("content-type: ") == 1
    assert "content-type: application/xml" in receiver.requests[0][0].lower()


async def test_a_name_gets_the_right_sni_host_and_certificate(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, NAME, PUBLIC)
    sender = Sender(rule=rule, lookup=Zone([PUBLIC]), tls=client)
    async with receiving(respond_with(OK), tls=server) as receiver, sender:
        await sender.post(receiver.at(NAME), b"{}", {})
        await sender.post(receiver.at(PUBLIC), b"{}", {})
    assert receiver.names == [NAME, None]
    for (head, _), host in zip(receiver.requests, (NAME, PUBLIC), strict=True):
        assert f"Host: {host}:{receiver.port}\r\n" in head


async def test_a_certificate_of_another_name_or_an_unknown_issuer_is_refused(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, "other.example")
    zone = Zone([PUBLIC])
    async with receiving(respond_with(OK), tls=server) as receiver:
        for tls, why in ((client, "certificate is not valid for 'hooks.example'"), (None, "self-signed")):
            async with Sender(rule=rule, lookup=zone, tls=tls) as sender:
                error = await failed(sender, receiver.at(NAME), dev=False)
            assert error.code == "TLS"
            assert f"the certificate of {NAME}:{receiver.port} is not accepted" in str(error)
            assert why in str(error)
    assert receiver.requests == []


async def test_a_receiver_that_speaks_no_tls_is_named_so() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receiver: object) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with receiving(plain) as receiver, Sender(rule=rule) as sender:
        error = await failed(sender, f"https://{PUBLIC}:{receiver.port}/", dev=False)
    assert error.code == "TLS"
    assert str(error).startswith(f"no TLS with {PUBLIC}:{receiver.port}: ")


async def test_connections_are_kept_and_used_again() -> None:
    async with receiving(respond_with(OK)) as receiver, Sender(rule=rule) as sender:
        for _ in range(5):
            await sender.post(receiver.url, b"{}", {}, 5, dev=True)
        assert (receiver.connections, len(receiver.requests)) == (1, 5)
        await asyncio.gather(*(sender.post(receiver.url, b"{}", {}, 5, dev=True) for _ in range(10)))
    assert receiver.connections <= 10


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_without_an_error() -> None:
    async with receiving(respond_with(OK, b"")) as receiver, Sender(rule=rule) as sender:
        for _ in range(3):
            assert (await sender.post(receiver.url, b"{}", {}, 5, dev=True)).status == 200
    assert receiver.connections == 3


async def test_a_new_connection_that_is_closed_without_a_response_is_an_error_and_not_repeated() -> None:
    async with receiving(respond_with(b"")) as receiver, Sender(rule=rule) as sender:
        error = await failed(sender, receiver.url)
    assert error.code == "DISCONNECTED"
    assert str(error) == f"{PUBLIC}:{receiver.port} closed the connection without a response"
    assert (error.answer, error.details, len(receiver.requests)) == (None, {}, 1)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_a_status_that_begins_with_2_is_accepted(status: int) -> None:
    length = "" if status == 204 else "Content-Length: 0\r\n"
    async with (
        receiving(respond_with(f"HTTP/1.1 {status} X\r\n{length}\r\n".encode())) as receiver,
        Sender(rule=rule) as sender,
    ):
        assert (await sender.post(receiver.url, b"{}", {}, 5, dev=True)).status == status


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (300, "HTTP_300", "the receiver returned 300 Multiple Choices"),
        (400, "HTTP_400", "the receiver returned 400 Bad Request"),
        (410, "HTTP_410", "the receiver returned 410 Gone"),
        (429, "HTTP_429", "the receiver returned 429 Too Many Requests"),
        (503, "HTTP_503", "the receiver returned 503 Service Unavailable"),
        (599, "HTTP_599", "the receiver returned 599"),
        (999, "HTTP_999", "the receiver returned 999"),
    ],
)
async def test_any_other_status_is_an_error_that_carries_the_response(status: int, code: str, text: str) -> None:
    response = f"HTTP/1.1 {status} Whatever\r\nRetry-After: 120\r\nContent-Length: 4\r\n\r\nbusy".encode()
    async with receiving(respond_with(response)) as receiver, Sender(rule=rule) as sender:
        error = await failed(sender, receiver.url)
        again = await failed(sender, receiver.url)
    assert (error.code, str(error)) == (code, text)
    assert error.answer is not None and error.answer.headers["retry-after"] == "120"
    assert error.details["response"]["response_body"] == base64.b64encode(b"busy").decode()
    assert (again.code, receiver.connections) == (code, 1)


def test_a_response_is_described_in_json_and_an_error_keeps_its_code() -> None:
    response = Answer(503, {"server": "x"}, b"\x00\xff", 0.25, cut=True)
    error = DeliveryError("HTTP_503", "the receiver returned 503", response)
    assert json.loads(json.dumps(error.details)) == {
        "response": {
            "http_status": 503,
            "response_headers": {"server": "x"},
            "response_body": "AP8=",
            "seconds": 0.25,
            "cut": True,
        }
    }
    details = describe(error, 1000)
    assert (details["type"], details["code"], details["message"]) == (
        "DeliveryError",
        "HTTP_503",
        "the receiver returned 503",
    )


async def test_a_refused_connection_names_the_port() -> None:
    async with receiving(respond_with(OK)) as receiver:
        pass
    async with Sender(rule=rule) as sender:
        error = await failed(sender, receiver.url)
    assert (error.code, str(error)) == ("CONNECT", f"no connection to {receiver.url[7:-5]}: Connection refused")


async def test_a_name_that_does_not_resolve_is_named() -> None:
    async with Sender() as sender:
        error = await failed(sender, "https://nobody.invalid/", dev=False)
    assert (error.code, str(error)) == ("DNS", "the name 'nobody.invalid' does not resolve to a public address")
    async with Sender(lookup=Zone([])) as sender:
        error = await failed(sender, "https://nobody.invalid/", dev=False)
    assert (error.code, str(error)) == ("DNS", "the name 'nobody.invalid' does not resolve to a public address")


async def test_a_name_server_that_is_away_is_distinguished_from_a_name_without_an_address() -> None:
    async def away(host: str, port: int) -> list[Address]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    async with Sender(lookup=away) as sender:
        error = await failed(sender, f"https://{NAME}/", dev=False)
    assert (error.code, str(error)) == ("DNS", f"the name {NAME!r} cannot be resolved at the moment")


@pytest.mark.parametrize("dev", [False, True])
async def test_the_error_for_a_name_inside_is_that_for_an_unknown_name_and_the_log_has_the_address(
    caplog: pytest.LogCaptureFixture, dev: bool
) -> None:
    async def unknown(host: str, port: int) -> list[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    inside = Zone(["169.254.169.254", "fd00:ec2::254"])
    errors = []
    for lookup in (inside, unknown):
        async with Sender(lookup=lookup) as sender:
            errors.append(await failed(sender, f"https://dev{dev}.corp.example/", dev=dev))
    assert errors[0].code == errors[1].code and str(errors[0]) == str(errors[1])
    assert [r.fields["reason"][:15] for r in caplog.records if r.name == "holdfast.webhooks"] == ["169.254.169.254"]


async def test_the_system_resolves_names_and_what_it_says_is_checked() -> None:
    async with receiving(respond_with(OK), host=INSIDE) as receiver, Sender() as sender:
        assert (await sender.post(receiver.at("localhost"), b"{}", {}, 5, dev=True)).status == 200
        error = await failed(sender, f"https://localhost:{receiver.port}/", dev=False)
    assert error.code == "ADDRESS_REFUSED"
    assert receiver.connections == 1


async def test_a_name_that_hangs_stops_at_the_deadline_and_delays_no_other_request() -> None:
    never = asyncio.Event()

    async def lookup(host: str, port: int) -> list[Address]:
        if host.startswith("slow"):
            await never.wait()
        return [ipaddress.ip_address(PUBLIC)]

    async with receiving(respond_with(OK)) as receiver, Sender(rule=rule, lookup=lookup) as sender:
        slow = [asyncio.create_task(failed(sender, receiver.at(f"slow{n}.example"), 0.3)) for n in range(100)]
        assert (await sender.post(receiver.at(NAME), b"{}", {}, 5, dev=True)).status == 200
        assert {(await each).code for each in slow} == {"TIMEOUT"}


async def test_a_name_is_resolved_once_for_all_who_need_it_now() -> None:
    zone = Zone([PUBLIC])
    async with receiving(respond_with(OK)) as receiver, Sender(rule=rule, lookup=zone) as sender:
        await asyncio.gather(*(sender.post(receiver.at(NAME), b"{}", {}, 5, dev=True) for _ in range(20)))
    assert (zone.lookups, receiver.connections) == (1, 20)


async def test_path_and_query_are_sent_as_they_were_written() -> None:
    wanted = "/a%2Fb/../%7Ec;d=%zz?x=%2B+y&z=%41"
    async with receiving(respond_with(OK)) as receiver, Sender(rule=rule) as sender:
        await sender.post(f"http://{PUBLIC}:{receiver.port}{wanted}", b"{}", {}, 5, dev=True)
    assert receiver.requests[0][0].startswith(f"POST {wanted} HTTP/1.1\r\n")


async def test_a_body_of_several_megabytes_is_sent_whole() -> None:
    body = bytes(range(256)) * 12_000
    async with receiving(respond_with(OK)) as receiver, Sender(rule=rule) as sender:
        await sender.post(receiver.url, body, {}, 5, dev=True)
    assert receiver.requests[0][1] == body


async def test_canceling_ends_the_post_and_its_connection() -> None:
    lookups = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receiver: object) -> None:
        await request(reader, receiver)  # type: ignore[arg-type]
        lookups.set()
        await reader.read()

    async with receiving(silent) as receiver, Sender(rule=rule) as sender:
        task = asyncio.create_task(sender.post(receiver.url, b"{}", {}, 60, dev=True))
        await lookups.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(receiver.closed.wait(), 5)


def test_all_of_it_works_on_uvloop(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, NAME)
    wrong = ssl.create_default_context()

    async def main() -> list[str]:
        sender = Sender(rule=rule, lookup=Zone([PUBLIC]), tls=client)
        async with receiving(respond_with(OK), tls=server) as receiver, sender:
            assert (await sender.post(receiver.at(NAME), b"{}", {})).body == b"fine"
            inward = await failed(sender, f"https://{INSIDE}:{receiver.port}/", dev=False)
            async with Sender(rule=rule, lookup=Zone([PUBLIC]), tls=wrong) as other:
                refused = await failed(other, receiver.at(NAME), dev=False)
        closed = await failed(sender, receiver.at(NAME), dev=False)
        await sender.close()
        return [inward.code, refused.code, closed.code, str(closed)]

    codes = uvloop.run(main())
    assert codes[:3] == ["ADDRESS_REFUSED", "TLS", "CONNECT"]
    assert codes[3].endswith(": Connection refused")


def test_the_default_rule_is_the_real_one() -> None:
    assert Sender().rule is refusal
