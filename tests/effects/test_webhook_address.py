"""Which addresses may be dialed, and which URLs an endpoint may have."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigurationError, Holdfast, UsageError
from holdfast.client.delivery import serve
from holdfast.effects.address import check_address, check_url, refusal, rule_with
from holdfast.settings import Settings

REFUSED = [
    ("0.0.0.0", "an address of no particular host"),  # noqa: S104
    ("0.1.2.3", "an address of no particular host"),
    ("10.0.0.1", "a private address"),
    ("100.64.0.1", "a carrier's shared address"),
    ("100.100.100.200", "an address of a cloud's metadata service"),
    ("127.0.0.1", "a loopback address"),
    ("127.255.255.254", "a loopback address"),
    ("168.63.129.16", "an address of a cloud's metadata service"),
    ("169.254.1.1", "a link-local address"),
    ("169.254.169.254", "an address of a cloud's metadata service"),
    ("169.254.170.2", "an address of a cloud's metadata service"),
    ("172.16.0.1", "a private address"),
    ("172.31.255.255", "a private address"),
    ("192.0.0.8", "an address reserved for protocols"),
    ("192.0.0.192", "an address of a cloud's metadata service"),
    ("192.0.2.1", "an address for documentation"),
    ("192.88.99.1", "a 6to4 relay"),
    ("192.168.1.1", "a private address"),
    ("198.18.0.1", "an address for benchmarks"),
    ("198.51.100.1", "an address for documentation"),
    ("203.0.113.1", "an address for documentation"),
    ("224.0.0.1", "a multicast address"),
    ("239.255.255.255", "a multicast address"),
    ("240.0.0.1", "a reserved address"),
    ("255.255.255.255", "the broadcast address"),
    ("::", "an address of no particular host"),
    ("::1", "a loopback address"),
    ("::7f00:1", "an IPv4 address written as IPv6"),
    ("::ffff:127.0.0.1", "an IPv4 address mapped into IPv6"),
    ("::ffff:8.8.8.8", "an IPv4 address mapped into IPv6"),
    ("::ffff:0:7f00:1", "an IPv4 address translated into IPv6"),
    ("64:ff9b::7f00:1", "an IPv4 address behind NAT64"),
    ("64:ff9b::808:808", "an IPv4 address behind NAT64"),
    ("64:ff9b:1::a00:1", "an IPv4 address behind a local NAT64"),
    ("2606:4700::5efe:a00:1", "an IPv4 address in an ISATAP tunnel"),
    ("2606:4700::200:5efe:7f00:1", "an IPv4 address in an ISATAP tunnel"),
    ("2606:4700:1:2:300:5efe:808:808", "an IPv4 address in an ISATAP tunnel"),
    ("100::1", "a reserved address"),
    ("2001::7f00:1", "an IPv4 address in a Teredo tunnel"),
    ("2001:2::1", "an address for benchmarks"),
    ("2001:10::1", "an address reserved for protocols"),
    ("2001:db8::1", "an address for documentation"),
    ("2002:7f00:1::", "an IPv4 address in a 6to4 tunnel"),
    ("2002:808:808::1", "an IPv4 address in a 6to4 tunnel"),
    ("3fff::1", "an address for documentation"),
    ("4000::1", "a reserved address"),
    ("5f00::1", "a reserved address"),
    ("fc00::1", "a private address"),
    ("fd00:ec2::254", "an address of a cloud's metadata service"),
    ("fd20:ce::254", "an address of a cloud's metadata service"),
    ("fd00:42::42", "an address of a cloud's metadata service"),
    ("fd12:3456::1", "a private address"),
    ("fe80::1", "a link-local address"),
    ("fe80::1%eth0", "a link-local address"),
    ("2606:4700::1%eth0", "a reserved address"),
    ("fec0::1", "a site-local address"),
    ("ff02::1", "a multicast address"),
    ("ff0e::1", "a multicast address"),
]
FOR_DEVELOPMENT = {"a loopback address", "a private address", "a carrier's shared address"}
PUBLIC = ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"]
V4 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)
V6 = st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address)
NEAR = st.sampled_from(REFUSED).map(lambda each: ipaddress.ip_address(each[0]))


@pytest.mark.parametrize(("address", "reason"), REFUSED)
def test_addresses_that_are_not_public_are_refused_in_words(address: str, reason: str) -> None:
    assert refusal(ipaddress.ip_address(address)) == reason
    for_development = refusal(ipaddress.ip_address(address), dev=True)
    assert for_development == (None if reason in FOR_DEVELOPMENT else reason)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_dialled(address: str) -> None:
    assert refusal(ipaddress.ip_address(address)) is None


@given(address=st.one_of(V4, V6, V6.map(lambda a: ipaddress.IPv6Address(int(a) >> 3 | 1 << 125)), NEAR))
def test_what_may_be_dialled_is_global_by_the_standard_library_too(address: ipaddress.IPv4Address) -> None:
    if refusal(address) is None:
        assert address.is_global
        assert not (address.is_multicast or address.is_reserved or address.is_loopback or address.is_link_local)


@given(inner=V4)
def test_no_ipv4_address_passes_inside_an_ipv6_one(inner: ipaddress.IPv4Address) -> None:
    number = int(inner)
    around = [
        number,  # compatible
        0xFFFF << 32 | number,  # mapped
        0xFFFF << 48 | number,  # translated
        0x64FF9B << 96 | number,  # NAT64
        0x64FF9B0001 << 80 | number,  # local NAT64
        0x2002 << 112 | number << 80 | 1,  # 6to4
        0x20010000 << 96 | (number ^ 0xFFFFFFFF),  # Teredo
    ]
    for each in around:
        for dev in (False, True):
            if each != 1:  # ::1 is loopback before it is 0.0.0.1
                assert refusal(ipaddress.IPv6Address(each), dev), ipaddress.IPv6Address(each)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://Example.COM:443/Hook?a=1&b=%2F", "https://example.com/Hook?a=1&b=%2F"),
        ("https://example.com:8443/x", "https://example.com:8443/x"),
        ("https://example.com?x=1", "https://example.com/?x=1"),
        ("https://bücher.example/größe?q=ü", "https://xn--bcher-kva.example/gr%C3%B6%C3%9Fe?q=%C3%BC"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("https://8.8.8.8/x", "https://8.8.8.8/x"),
        ("https://[2606:4700:0:0::1111]:444/", "https://[2606:4700::1111]:444/"),
        ("https://my_host.example/a//b/../c;d", "https://my_host.example/a//b/../c;d"),
        ("https://example.com/{id}|<x>", "https://example.com/%7Bid%7D%7C%3Cx%3E"),
    ],
)
def test_a_url_is_brought_to_the_spelling_that_is_sent(url: str, expected: str) -> None:
    assert check_url(url).url == expected
    assert check_url(expected).url == expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "1 to 2000 characters"),
        ("https://example.com/" + "x" * 2000, "1 to 2000 characters"),
        ("example.com/x", "must begin with https://"),
        ("ftp://example.com/", "must begin with https://"),
        ("file:///etc/passwd", "must begin with https://"),
        ("http://example.com/", "unless the endpoint is marked for development"),
        ("https://user:password@example.com/", "must not have a user or password"),
        ("https://@example.com/", "must not have a user or password"),
        ("https://example.com/#part", "must not have a fragment"),
        ("https://example.com/#", "must not have a fragment"),
        ("https:///path", "has no host"),
        ("https://", "has no host"),
        ("https://:443/", "has no host"),
        ("https://example.com:/", "has no host, or a port"),
        ("https://example.com:x/", "has no host, or a port"),
        ("https://example.com:-1/", "has no host, or a port"),
        ("https://example.com:٤٤٣/", "has no host, or a port"),
        ("https://example.com:0/", "a port is 1 to 65535"),
        ("https://example.com:65536/", "a port is 1 to 65535"),
        ("https://exa mple.com/", "has a space"),
        ("https://example.com/\r\nX: 1", "has a space"),
        ("https://exam\tple.com/", "has a space"),
        ("https://example.com\\@127.0.0.1/", "has a space"),
        ("https://example.com/\ud800", "has a space"),
        ("https://example.com./", "is not a name"),
        ("https://exa%6dple.com/", "is not a name"),
        ("https://a..b.example/", "is not a name"),
        ("https://-a.example/", "is not a name"),
        ("https://" + "a" * 64 + ".example/", "is not a name"),
        ("https://straße.example/", "two encodings"),
        ("https://localhost/", "is not a public name"),
        ("https://db.localhost/", "is not a public name"),
        ("https://intranet/", "is not a public name"),
        ("https://[::1/", "cannot be read"),
        ("https://[v1.fe80]/", "is not an IPv6 address"),
        ("https://[fe80::1%25eth0]/", "has a zone"),
        ("https://[::1]x/", "has no host"),
    ],
)
def test_urls_that_no_webhook_may_have_are_refused_in_words(url: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check_url(url)


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "0x7f000001",
        "0x7f.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.01",
        "0",
        "0x",
        "127.0.0.1.",
        "1.2.3.4.5",
        "256.1.1.1",
        "\uff11\uff12\uff17.0.0.1",
        "①②⑦.0.0.1",
        "foo.0x10",
        "foo.123",
    ],
)
def test_addresses_in_unusual_spellings_are_refused(host: str) -> None:
    for dev in (False, True):
        with pytest.raises(UsageError, match="unusual spelling"):
            check_url(f"https://{host}/", dev)


def test_an_address_parted_by_dots_of_another_script_is_that_address() -> None:
    with pytest.raises(UsageError, match=r"127\.0\.0\.1 is a loopback address"):
        check_url("https://127\u30020\u30020\u30021/")
    assert str(check_url("https://8\uff0e8\uff0e8\uff0e8/").address) == "8.8.8.8"


@pytest.mark.parametrize("address", [address for address, _ in REFUSED if "%" not in address])
def test_a_url_with_an_address_that_is_not_public_is_refused(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(UsageError, match="webhooks are sent to public addresses only"):
        check_url(f"https://{host}/")


def test_an_endpoint_for_development_may_use_http_and_be_near() -> None:
    for url in ("http://127.0.0.1:8000/hook", "http://localhost:8000/", "http://receiver/", "http://[::1]:80/"):
        assert check_url(url, dev=True).url.startswith("http://")
    assert check_url("http://10.1.2.3:443/", dev=True).url == "http://10.1.2.3:443/"
    with pytest.raises(UsageError, match=r"169\.254\.169\.254 is an address of a cloud's metadata service"):
        check_url("http://169.254.169.254/latest/meta-data/", dev=True)


def test_addresses_behind_a_networks_own_nat64_are_refused_for_every_endpoint() -> None:
    rule = rule_with("2606:4700:64::/96, 2a00:1450:64::/48")
    for address in ("2606:4700:64::7f00:1", "2a00:1450:64:ff::8.8.8.8"):
        for dev in (False, True):
            assert rule(ipaddress.ip_address(address), dev) == "an IPv4 address behind this network's NAT64"
            assert refusal(ipaddress.ip_address(address), dev) is None
    for address in ("2606:4700:65::1", "8.8.8.8"):
        assert rule(ipaddress.ip_address(address), False) is None
    assert rule(ipaddress.ip_address("10.0.0.1"), False) == "a private address"
    assert rule_with(" , ") is refusal
    with pytest.raises(UsageError, match="behind this network's NAT64"):
        check_url("https://[2606:4700:64::7f00:1]/", False, rule)


def test_a_prefix_that_is_no_network_is_refused_at_once() -> None:
    for wrong in ("10.0.0.0/8", "2606:4700:64::1/96", "nat64"):
        with pytest.raises(ConfigurationError, match="is not an IPv6 network"):
            Settings(nat64_prefixes=f"64:ff9b::/96,{wrong}")


def test_an_endpoint_behind_the_networks_own_nat64_is_refused_when_it_is_made() -> None:
    hf = Holdfast(dsn="postgresql://nowhere", nat64_prefixes="2606:4700:64::/96")
    with pytest.raises(UsageError, match="behind this network's NAT64"):
        hf.webhooks.add("https://[2606:4700:64::7f00:1]/")


async def test_the_worker_dials_by_the_rule_of_the_settings() -> None:
    hf = Holdfast(dsn="postgresql://nowhere", nat64_prefixes="2606:4700:64::/96")
    serve(hf, hf.settings)
    (poster,) = hf.registry.resources
    async with contextlib.AsyncExitStack() as stack:
        sender = await (await poster.open(stack)).sender()
        assert sender.rule(ipaddress.ip_address("2606:4700:64::7f00:1"), False) is not None


def test_an_error_says_which_address_a_name_had_and_what_would_allow_it() -> None:
    with pytest.raises(UsageError) as refused:
        check_address("hooks.example", ipaddress.ip_address("10.0.0.7"), dev=False)
    assert str(refused.value) == (
        "10.0.0.7, which 'hooks.example' resolves to, is a private address: webhooks are sent to public addresses "
        "only, unless the endpoint is marked for development"
    )
    with pytest.raises(UsageError) as refused:
        check_url("https://[64:ff9b::7f00:1]/")
    assert str(refused.value) == (
        "64:ff9b::7f00:1 is an IPv4 address behind NAT64: webhooks are sent to public addresses only"
    )


def test_errors_show_neither_user_nor_password_nor_query() -> None:
    for url in ("http://ada:hunter2@example.com/?token=hunter2", "https://a b@hunter2@x/?hunter2", "x://h?hunter2"):
        with pytest.raises(UsageError) as refused:
            check_url(url)
        assert "hunter2" not in str(refused.value)


@given(text=st.text() | st.text().map(lambda t: f"https://{t}/") | st.from_regex(r"https://[0-9a-fx.:\[\]%@]{1,20}/"))
def test_any_text_is_a_target_that_may_be_dialled_or_a_usage_error(text: str) -> None:
    try:
        target = check_url(text)
    except UsageError:
        return
    assert target.url.isascii()
    assert target.url.startswith("https://")
    if target.address is not None:
        assert refusal(target.address) is None
    else:  # no parser, however lax, may take the name for an address
        with pytest.raises(OSError):  # noqa: PT011 - inet_aton gives no message
            socket.inet_aton(target.host)
