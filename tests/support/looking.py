"""A browser without scripts, as tests of the dashboard use it: signed in, with the tokens of its forms."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from holdfast import Holdfast
from holdfast.web import app
from holdfast.web.app import Application

HTML = {"Accept": "text/html"}


class Browser:
    """A client that fills in the CSRF token of the page it saw last."""

    def __init__(self, http: httpx.AsyncClient, application: Application) -> None:
        self.http = http
        self.app = application
        self.csrf = ""

    async def get(self, path: str, expected: int = 200, /, **params: Any) -> str:
        """Return a page, whose status must be the expected one."""
        response = await self.http.get(path, params=params or None)
        assert response.status_code == expected, (response.status_code, words(response.text)[:500])
        if found := re.search(r'name="csrf" value="([^"]+)"', response.text):
            self.csrf = found[1]
        return response.text

    async def post(self, path: str, **fields: Any) -> httpx.Response:
        """Post a form with the token of the last page."""
        return await self.http.post(path, data={"csrf": self.csrf, **fields})

    async def act(self, path: str, **fields: Any) -> str:
        """Post a form, follow the redirect, and return the page behind it."""
        response = await self.post(path, **fields)
        assert response.status_code == 303, (response.status_code, response.text[:2000])
        return await self.get(response.headers["location"])

    async def sign_in(self, token: str) -> None:
        """Exchange a token for a session."""
        await self.get("/sign-in")
        response = await self.post("/sign-in", token=token)
        assert response.status_code == 303, response.text


@asynccontextmanager
async def browser(
    hf: Holdfast, token: str | None = None, *, address: str = "192.0.2.1", base: str = "http://service", **options: Any
) -> AsyncIterator[Browser]:
    """Yield a browser, signed in with a token."""
    application = app(hf, **options)
    transport = httpx.ASGITransport(application, client=(address, 1234))
    async with httpx.AsyncClient(transport=transport, base_url=base, headers=HTML, timeout=60) as http:
        made = Browser(http, application)
        if token is not None:
            await made.sign_in(token)
        yield made


def words(page: str) -> str:
    """Return the text of a page without its tags, in one line."""
    body = re.sub(r"<(title|desc)>.*?</\1>", " ", page.partition("<body")[2] or page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())
