"""The outside world on 127.0.0.x: well and badly behaved sites, and a Sentry that records what it is sent.

Each address is a domain. The first part of a path selects what its page does; each site has the same parts, and the
bookmarks (fake_bookmarks.py) use some more often. It counts requests, and how many are open at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import threading
from collections import Counter, defaultdict
from typing import Any

from aiohttp import web

SENTRY = "127.0.0.10"
SITES = {
    "127.0.0.11": "news",
    "127.0.0.12": "blog",
    "127.0.0.13": "docs",
    "127.0.0.14": "short links",
    "127.0.0.15": "forum",
    "127.0.0.16": "wiki",
    "127.0.0.17": "video, slow",
    "127.0.0.18": "photos, huge",
    "127.0.0.19": "Korean, EUC-KR",
    "127.0.0.20": "code",
    "127.0.0.21": "papers, PDF",
    "127.0.0.22": "shop, shaky",
    "127.0.0.23": "paywall",
    "127.0.0.24": "behind a captcha",
    "127.0.0.25": "archive, robots.txt",
    "127.0.0.26": "busy, 429",
}
ROBOTS = "User-agent: *\nDisallow: /private\n\nUser-agent: OtherBot\nDisallow: /\n"
PAGE = """<!doctype html><html><head><meta charset="{charset}">{title}
<meta name="description" content="About {path} &amp; more"><link rel="shortcut icon" href="/icon.png">
<meta property="og:image" content="https://img.example{path}.jpg"></head><body>{body}</body></html>"""
BODY = "<p>A secret recipe that must not be kept.</p>" * 40


class FakeWeb:
    """Started and stopped by `with FakeWeb() as web`; runs in a thread of its own."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: Counter[tuple[str, str]] = Counter()  # requests by host and path with query
        self.responses: Counter[tuple[str, str, int]] = Counter()  # the same, with the status
        self.at_once: Counter[str] = Counter()
        self.most: defaultdict[str, int] = defaultdict(int)  # requests at once, by host
        self.events: list[dict[str, Any]] = []  # what Sentry got
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-web")

    def __enter__(self) -> FakeWeb:
        self._thread.start()
        if not self._ready.wait(10) or not self.port:
            raise RuntimeError("the fake web did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def url(self, host: str, path: str) -> str:
        return f"http://{host}:{self.port}{path}"

    @property
    def sentry_dsn(self) -> str:
        return f"http://public@{SENTRY}:{self.port}/1"

    def enriched(self) -> Counter[tuple[str, str]]:
        """Return how often each page was sent in full."""
        given = {(host, path): n for (host, path, status), n in self.responses.items() if status == 200}
        return Counter({page: n for page, n in given.items() if page[0] in SITES and page[1] != "/robots.txt"})

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = web.AppRunner(self._app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        try:
            self._loop.run_until_complete(self._start(runner))
            self._ready.set()
            self._loop.run_forever()
        finally:
            self._ready.set()
            self._loop.run_until_complete(runner.cleanup())
            self._loop.close()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._count])
        app.add_routes([web.post("/api/1/envelope/", self._sentry), web.get("/{path:.*}", self._site)])
        return app

    async def _start(self, runner: web.AppRunner) -> None:
        """Bind the same port on every address; try another one if it is taken anywhere."""
        await runner.setup()
        for _ in range(20):
            sockets: list[socket.socket] = []
            try:
                for host in (SENTRY, *SITES):
                    sockets.append(socket.create_server((host, sockets[0].getsockname()[1] if sockets else 0)))
            except OSError:
                for each in sockets:
                    each.close()
                continue
            for each in sockets:
                await web.SockSite(runner, each).start()
            self.port = sockets[0].getsockname()[1]
            return

    @web.middleware
    async def _count(self, request: web.Request, handler: Any) -> web.StreamResponse:
        host = request.host.partition(":")[0]
        self.requests[host, request.path_qs] += 1
        self.at_once[host] += 1
        self.most[host] = max(self.most[host], self.at_once[host])
        try:
            response: web.StreamResponse = await handler(request)
        finally:
            self.at_once[host] -= 1
        self.responses[host, request.path_qs, response.status] += 1
        return response

    async def _site(self, request: web.Request) -> web.StreamResponse:
        host, path = request.host.partition(":")[0], request.path
        kind = path.split("/")[1]
        first = self.requests[host, request.path_qs] == 1
        await asyncio.sleep({"slow": 0.15, "hang": 30.0 * first}.get(kind, 0.02))
        if path == "/robots.txt":
            return web.Response(text=ROBOTS) if SITES[host] != "blog" else web.Response(status=404)
        if kind == "busy" and first:
            return web.Response(status=429, headers={"Retry-After": "1"})
        if kind in ("forbidden", "broken") or (kind == "flaky" and first):
            return web.Response(status=403 if kind == "forbidden" else 500, text="no")
        if kind in ("moved", "away", "circle"):
            return web.Response(status=301, headers={"Location": self._location(kind, host, path)})
        return await self._page(request, kind, path)

    def _location(self, kind: str, host: str, path: str) -> str:
        """Return the target of moved (another path here), away (another host) or circle (there and back forever)."""
        if kind == "moved":
            return path.replace("/moved/", "/page/here-")
        if kind == "circle":
            return path[:-5] if path.endswith("/back") else f"{path}/back"
        return self.url("127.0.0.16", path.replace("/away/", "/page/from-away-"))

    async def _page(self, request: web.Request, kind: str, path: str) -> web.StreamResponse:
        if kind == "file":
            return web.Response(body=b"%PDF-1.7 \x00\xff", content_type="application/pdf")
        if kind == "captcha":
            return _html("<title>Just a moment...</title>", path, '<div id="px-captcha"></div>')
        if kind == "korean":  # declares UTF-8 in its header, and is not
            title = "<title>한국어 제목</title>"
            return _html(title, path, BODY, "euc-kr", "utf-8")
        if kind == "huge":
            return await _huge(request, path)
        return _html("" if kind == "untitled" else f"<title>Page {path}</title>", path, BODY)

    async def _sentry(self, request: web.Request) -> web.Response:
        data = await request.read()
        lines = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).splitlines()
        self.events += [event for line in lines[1:] if "exception" in (event := json.loads(line))]
        return web.json_response({})


def _html(title: str, path: str, body: str, charset: str = "utf-8", claimed: str | None = None) -> web.Response:
    text = PAGE.format(title=title, path=path, body=body, charset=charset)
    return web.Response(body=text.encode(charset), headers={"Content-Type": f"text/html; charset={claimed or charset}"})


async def _huge(request: web.Request, path: str) -> web.StreamResponse:
    """Send 64 MB to a client that reads to the end."""
    response = web.StreamResponse(headers={"Content-Type": "text/html"})
    await response.prepare(request)
    head = PAGE.format(title=f"<title>Page {path}</title>", path=path, body="", charset="utf-8")
    await response.write(head.encode())
    with contextlib.suppress(ConnectionError):
        for _ in range(1024):
            await response.write(b"x" * 65536)
    return response
