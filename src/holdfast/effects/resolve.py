"""Resolve names to the addresses that may be dialed."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from aiohttp.abc import AbstractResolver, ResolveResult

from holdfast.effects.address import Address, Rule, check_address

Lookup = Callable[[str, int], Awaitable[Sequence[Address]]]
_LOOKUPS = 64  # concurrent lookups: one name server that hangs must not block all of them


class CheckedResolver(AbstractResolver):
    """Resolves a name to its addresses, without those that must not be dialed."""

    def __init__(self, lookup: Lookup, rule: Rule, dev: bool) -> None:
        self._lookup, self._rule, self._dev = lookup, rule, dev

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._lookup(host, port)
        allowed = [address for address in found if self._rule(address, self._dev) is None]
        if not allowed:
            for address in found:
                check_address(host, address, self._dev, self._rule)
            raise OSError(None, "it has no address")
        return [_result(host, port, address) for address in allowed]

    async def close(self) -> None:
        pass


class Names:
    """Looks up names with getaddrinfo, in daemon threads, so that a slow lookup does not delay the exit."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(_LOOKUPS)

    async def lookup(self, host: str, port: int) -> list[Address]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[Address]] = loop.create_future()

        def look() -> None:
            found: list[Address] | Exception
            try:
                found = _look_up(host, port)
            except Exception as error:
                found = error
            with suppress(RuntimeError):  # the loop may be closed
                loop.call_soon_threadsafe(_settle, done, found)

        async with self._room:
            threading.Thread(target=look, name="holdfast-name", daemon=True).start()
            return await done


def _result(host: str, port: int, address: Address) -> ResolveResult:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=str(address), port=port, family=family, proto=0, flags=flags)


def _look_up(host: str, port: int) -> list[Address]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ipaddress.ip_address(peer[0]) for *_, peer in infos))


def _settle(done: asyncio.Future[list[Address]], found: list[Address] | Exception) -> None:
    if done.done():
        return
    if isinstance(found, Exception):
        done.set_exception(found)
    else:
        done.set_result(found)
