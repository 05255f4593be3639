"""The service inside applications of other frameworks, as docs/guides/http.md shows it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from holdfast import Holdfast
from holdfast.web import app
from tests.support import django_site, serving
from tests.support.looking import HTML, Browser
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


def in_fastapi(service: Asgi) -> Any:
    from fastapi import FastAPI

    site = FastAPI()
    site.mount("/holdfast", service)
    return site


def in_starlette(service: Asgi) -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    return Starlette(routes=[Mount("/holdfast", service)])


def in_litestar(service: Asgi) -> Any:
    from litestar import Litestar, asgi

    @asgi("/holdfast", is_mount=True, copy_scope=True)
    async def holdfast(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rstrip("/")  # Litestar ends it with a slash
        await service({**scope, "path": path, "root_path": "/holdfast"}, receive, send)

    return Litestar([holdfast])


def in_django(service: Asgi) -> Any:
    from django.core.handlers.asgi import ASGIHandler

    site = ASGIHandler()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/holdfast/"):
            await service({**scope, "root_path": "/holdfast"}, receive, send)
        else:
            await site(scope, receive, send)

    return application


MOUNTS = (in_fastapi, in_starlette, in_litestar, in_django)


@pytest.mark.parametrize("mount", MOUNTS)
async def test_the_service_works_inside_another_application(
    dsn: str, shop: Holdfast, mount: Callable[[Asgi], Any]
) -> None:
    django_site.set_up(dsn)
    headers = {"Authorization": f"Bearer {serving.token(shop)}"}
    transport = httpx.ASGITransport(mount(app(shop)))
    async with httpx.AsyncClient(transport=transport, base_url="http://site/holdfast/v1", headers=headers) as http:
        made = serving.json_body(await http.post("/jobs", json={"task": "shop.send", "args": {"to": "ada"}}), 201)
        found = serving.json_body(await http.get(f"/jobs/{made['id']}", params={"wait": 0}))
        assert found["args"] == {"to": "ada"}
        assert serving.json_body(await http.get("/health/ready"))["status"] == "ok"
        detail = serving.problem(await http.get("/nothing"), 404, "not-found")["detail"]
        assert detail.endswith("; /holdfast/v1/openapi.json lists all paths")
        serving.problem(await http.get("/jobs", headers={"Authorization": ""}), 401, "unauthorized")
        document = serving.json_body(await http.get("/openapi.json"))
        assert document["servers"] == [{"url": "/holdfast"}]
        page = (await http.get("/docs")).text
        assert '"/holdfast/v1/static/docs.css"' in page
        assert (await http.get("/static/docs.css")).status_code == 200


@pytest.mark.parametrize("mount", MOUNTS)
async def test_the_dashboard_works_inside_another_application(
    dsn: str, shop: Holdfast, mount: Callable[[Asgi], Any]
) -> None:
    """Every link, redirect and cookie of it is below the prefix; a form changes something."""
    django_site.set_up(dsn)
    service = app(shop)
    transport = httpx.ASGITransport(mount(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://site", headers=HTML) as http:
        viewer = Browser(http, service)
        assert (await http.get("/holdfast/queues")).headers["location"] == "/holdfast/sign-in?next=%2Fqueues"
        await viewer.get("/holdfast/sign-in")
        response = await viewer.post("/holdfast/sign-in", token=serving.token(shop, None), next="/queues")
        assert response.headers["location"] == "/holdfast/queues"
        assert "Path=/holdfast" in response.headers["set-cookie"]
        for path in ("/holdfast/", "/holdfast/jobs", "/holdfast/queues"):
            links = re.findall(r'(?:href|src|action)="(/[^"]*)"', await viewer.get(path))
            assert links and all(each.startswith("/holdfast/") for each in links)
        files = [each for each in links if "/static/" in each]
        assert files and [(await http.get(each)).status_code for each in files] == [200] * len(files)
        await viewer.act("/holdfast/queues/pause", name="mail", reason="trial")
        assert [each.key for each in shop.limits.list("queue:") if each.paused] == ["queue:mail"]
