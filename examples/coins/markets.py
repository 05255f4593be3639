"""Search a marketplace, or the cache."""

from __future__ import annotations

import asyncio

import aiohttp

from coins.cache import Cache, cache_key
from coins.listings import FIELDS, Listing, Query, read_html, read_json

TIMEOUT = aiohttp.ClientTimeout(total=30)
TRANSIENT = (
    TimeoutError,
    ConnectionError,
    aiohttp.ClientConnectionError,
    "HTTP_429",
    "HTTP_500",
    "HTTP_502",
    "HTTP_503",
    "HTTP_504",
)


class Refused(Exception):
    """The marketplace responded without listings. The code decides about a retry: HTTP_503 yes, HTTP_404 no."""

    def __init__(self, source_id: str, status: int) -> None:
        super().__init__(f"{source_id} answered {status}")
        self.code = f"HTTP_{status}"


class Markets:
    """One search is one request, so the rate of jobs is the rate of requests."""

    def __init__(self, session: aiohttp.ClientSession, cache: Cache) -> None:
        self._session, self._cache = session, cache

    async def search(self, source_id: str, url: str, query: Query, job_id: str) -> tuple[list[Listing], bool]:
        """Return the listings for a coin, and whether they came from the cache."""
        key = cache_key(source_id, query)
        if (kept := await asyncio.to_thread(self._cache.get, key)) is not None:
            return _read(*kept), True
        params = {name: str(query[name]) for name in FIELDS if query.get(name) is not None}
        async with self._session.get(f"{url}/search", params=params, headers={"X-Job-Id": job_id}) as response:
            if response.status != 200:
                raise Refused(source_id, response.status)
            kind, body = response.content_type, await response.text()
        listings = _read(kind, body)  # unreadable responses are not kept
        await asyncio.to_thread(self._cache.put, key, kind, body)
        return listings, False


def _read(kind: str, body: str) -> list[Listing]:
    return read_json(body) if kind == "application/json" else read_html(body)
