"""Which addresses a webhook may be sent to, and which URLs an endpoint may have.

A tenant's endpoint URL decides where workers connect to, from inside the network. So an address is dialed only if it
is public by the table below (`ipaddress.is_global` accepts NAT64, 6to4 and multicast). A host is either a name, or an
address in the one spelling that all parsers agree on. The addresses of a name are checked when they are dialed
(send.py), because a name may resolve differently by then.

An endpoint marked for development may use http and a loopback or private address. Addresses of cloud metadata services,
and those that embed another address, stay refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlsplit

from holdfast.errors import UsageError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Rule = Callable[[Address, bool], str | None]
"""Returns why an address must not be dialed, in words that follow "is", or None. The flag is for development."""

_LONGEST_URL = 2000
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ODD = re.compile(r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff]")
# IDNA 2003 and 2008 encode these differently, so they would be two hosts.
_AMBIGUOUS = re.compile("[\u00df\u03c2\u200c\u200d]")
_SAFE_IN_PATH = "/?%:@!$&'()*+,;=-._~[]"

# The first match gives the reason. True: allowed for development.
_SPECIAL = [
    (ipaddress.ip_network(network), reason, for_development)
    for network, reason, for_development in [
        ("169.254.169.254", "an address of a cloud's metadata service", False),
        ("169.254.170.2", "an address of a cloud's metadata service", False),
        ("100.100.100.200", "an address of a cloud's metadata service", False),
        ("168.63.129.16", "an address of a cloud's metadata service", False),
        ("192.0.0.192", "an address of a cloud's metadata service", False),
        ("fd00:ec2::/32", "an address of a cloud's metadata service", False),
        ("fd20:ce::/32", "an address of a cloud's metadata service", False),
        ("fd00:42::42", "an address of a cloud's metadata service", False),
        ("0.0.0.0/8", "an address of no particular host", False),
        ("127.0.0.0/8", "a loopback address", True),
        ("10.0.0.0/8", "a private address", True),
        ("172.16.0.0/12", "a private address", True),
        ("192.168.0.0/16", "a private address", True),
        ("100.64.0.0/10", "a carrier's shared address", True),
        ("169.254.0.0/16", "a link-local address", False),
        ("192.0.0.0/24", "an address reserved for protocols", False),
        ("192.0.2.0/24", "an address for documentation", False),
        ("198.51.100.0/24", "an address for documentation", False),
        ("203.0.113.0/24", "an address for documentation", False),
        ("192.88.99.0/24", "a 6to4 relay", False),
        ("198.18.0.0/15", "an address for benchmarks", False),
        ("224.0.0.0/4", "a multicast address", False),
        ("255.255.255.255", "the broadcast address", False),
        ("240.0.0.0/4", "a reserved address", False),
        ("::", "an address of no particular host", False),
        ("::1", "a loopback address", True),
        ("::ffff:0:0/96", "an IPv4 address mapped into IPv6", False),
        ("::/96", "an IPv4 address written as IPv6", False),
        ("::ffff:0:0:0/96", "an IPv4 address translated into IPv6", False),
        ("64:ff9b::/96", "an IPv4 address behind NAT64", False),
        ("64:ff9b:1::/48", "an IPv4 address behind a local NAT64", False),
        ("2001::/32", "an IPv4 address in a Teredo tunnel", False),
        ("2002::/16", "an IPv4 address in a 6to4 tunnel", False),
        ("2001:2::/48", "an address for benchmarks", False),
        ("2001:db8::/32", "an address for documentation", False),
        ("3fff::/20", "an address for documentation", False),
        ("2001::/23", "an address reserved for protocols", False),
        ("fc00::/7", "a private address", True),
        ("fe80::/10", "a link-local address", False),
        ("fec0::/10", "a site-local address", False),
        ("ff00::/8", "a multicast address", False),
    ]
]
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_ISATAP = 0x5EFE  # the upper half of an interface's id whose lower half is an IPv4 address; two of its bits vary


@dataclass(frozen=True)
class CheckedUrl:
    """A URL that may be posted to. `url` is its normal form; `address` is set if the host is an address."""

    url: str
    host: str
    port: int
    address: Address | None


def refusal(address: Address, dev: bool = False) -> str | None:
    """Return why this address must not be dialed, or None. With `dev`, private and loopback addresses are allowed.

    A handler that fetches URLs of users should call this for each address before it connects, redirects included.
    """
    for network, reason, for_development in _SPECIAL:
        if address.version == network.version and address in network:
            return None if dev and for_development else reason
    if isinstance(address, ipaddress.IPv6Address):
        if address not in _GLOBAL_UNICAST or address.scope_id:
            return "a reserved address"
        if int(address) >> 32 & 0xFCFF_FFFF == _ISATAP:
            return "an IPv4 address in an ISATAP tunnel"
    return None


@lru_cache(maxsize=16)
def rule_with(nat64_prefixes: str) -> Rule:
    """Return the rule that also refuses addresses behind these prefixes, separated by commas: a network's own NAT64.

    A network may use any prefix for NAT64, so no table can list them.
    """
    networks = [ipaddress.IPv6Network(each.strip()) for each in nat64_prefixes.split(",") if each.strip()]
    if not networks:
        return refusal

    def rule(address: Address, dev: bool) -> str | None:
        if any(address in network for network in networks):
            return "an IPv4 address behind this network's NAT64"
        return refusal(address, dev)

    return rule


def check_address(host: str, address: Address, dev: bool, rule: Rule = refusal) -> None:
    """Raise UsageError if this address of a host must not be dialed."""
    reason = rule(address, dev)
    if reason is None:
        return
    where = str(address) if host in (str(address), f"[{address}]") else f"{address}, which {host!r} resolves to,"
    allowed = "" if dev or rule(address, True) else ", unless the endpoint is marked for development"
    raise UsageError(f"{where} is {reason}: webhooks are sent to public addresses only{allowed}")


@lru_cache(maxsize=2048)
def check_url(url: str, dev: bool = False, rule: Rule = refusal) -> CheckedUrl:
    """Return the target of a URL, or raise UsageError if no webhook may be sent there."""
    value: object = url  # not every caller has a type checker
    if not isinstance(value, str):
        raise UsageError(f"a webhook's URL must be a string, got a {type(value).__name__}")
    if not url or len(url) > _LONGEST_URL:
        raise UsageError(f"a webhook's URL has 1 to {_LONGEST_URL} characters, this one has {len(url)}")
    if _ODD.search(url):
        raise UsageError(f"the URL {_shown(url)} has a space or a control character; percent-encode it")
    scheme, netloc, path = _split(url, dev)
    host, port = _host_and_port(netloc, url, 443 if scheme == "https" else 80)
    address = _address(host)
    if address is None:
        host = _name(host, dev)
        address = _address(host)  # IDNA may have turned digits of another script into an address
    if address is not None:
        host = f"[{address}]" if address.version == 6 else str(address)
        check_address(host, address, dev, rule)
    authority = host if port == (443 if scheme == "https" else 80) else f"{host}:{port}"
    return CheckedUrl(f"{scheme}://{authority}{path}", host, port, address)


def _shown(url: str) -> str:
    """Return the URL for error messages, without user, password and query, which may be secret."""
    return repr(re.sub(r"//[^/?#]*@", "//", re.split(r"[?#]", url, maxsplit=1)[0]))


def _split(url: str, dev: bool) -> tuple[str, str, str]:
    """Return the scheme, the authority, and the path with the query; refuse a URL with other parts."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"the URL {_shown(url)} cannot be read: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise UsageError(f"a webhook's URL must begin with https://, got {_shown(url)}")
    if parts.scheme == "http" and not dev:
        raise UsageError(
            "a webhook's URL must begin with https://, unless the endpoint is marked for development (dev), "
            f"got {_shown(url)}"
        )
    if "@" in parts.netloc:
        raise UsageError("a webhook's URL must not have a user or password: they would be shown in logs and lists")
    if "#" in url:
        raise UsageError(f"a webhook's URL must not have a fragment (#...): it is never sent, got {_shown(url)}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, parts.netloc, quote(path, safe=_SAFE_IN_PATH)


def _host_and_port(netloc: str, url: str, usual: int) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?", netloc, re.ASCII)
    if found is None or not found[1]:
        raise UsageError(f"the URL {_shown(url)} has no host, or a port that is not a number")
    port = usual if found[2] is None else int(found[2])
    if not 1 <= port <= 65535:
        raise UsageError(f"a port is 1 to 65535, the URL {_shown(url)} has {port}")
    return found[1].lower(), port


def _address(host: str) -> Address | None:
    """Return the host's address, or None for a name; refuse spellings that parsers read differently."""
    if host.startswith("["):
        if "%" in host:
            raise UsageError(f"the host {host!r} has a zone: webhooks are sent to public addresses only")
        try:
            return ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise UsageError(f"the host {host!r} is not an IPv6 address") from None
    if not _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return None
    try:
        return ipaddress.IPv4Address(host)
    except ValueError:
        raise UsageError(
            f"the host {host!r} is an address in an unusual spelling; write it as four decimal numbers, like 192.0.2.1"
        ) from None


def _name(host: str, dev: bool) -> str:
    """Return a host's name in ASCII."""
    if _AMBIGUOUS.search(host):
        raise UsageError(f"the host {host!r} has a letter with two encodings; write it in punycode (xn--...)")
    try:
        name = host if host.isascii() else host.encode("idna").decode().lower()
    except UnicodeError:
        name = ""
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise UsageError(f"the host {host!r} is not a name: letters, digits and hyphens, separated by single dots")
    if not dev and ("." not in name or name.endswith(".localhost")):
        raise UsageError(
            f"the host {host!r} is not a public name: webhooks are sent to public addresses only, "
            "unless the endpoint is marked for development"
        )
    return name
