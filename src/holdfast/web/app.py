"""The ASGI application: routes, middleware and the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from holdfast.settings import VERSION
from holdfast.web import batches, dead, health, jobs, limits, observe, outbox, secrets, tick, webhooks
from holdfast.web.authenticate import Authenticated
from holdfast.web.fast_path import FastPath
from holdfast.web.guard import Bounds, Guard
from holdfast.web.parameters import of_routes
from holdfast.web.problems import EVERYWHERE, ProblemShape, handle_errors
from holdfast.web.service import Service

if TYPE_CHECKING:
    from holdfast.client import Holdfast

ROUTERS = (jobs.router, batches.router, dead.router, outbox.router, webhooks.router, limits.router, observe.router)
REPEATABLE = ("/tick", "/batches/{batch_id}/cancel")  # POSTs that are safe to repeat without an Idempotency-Key
MOST_DOCUMENTS = 10  # in the cache
OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("docs_url", "redoc_url", "openapi_url")),
    **dict.fromkeys(("separate_input_output_schemas", "strict_content_type", "redirect_slashes"), False),
}
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "a repeated request with the same key gets the stored first response and has no further effect",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}


def app(hf: Holdfast, *, tick_endpoint: bool = False) -> FastAPI:
    """Return the service as an ASGI application. Mount it in another one with `app.mount("/holdfast", web.app(hf))`.

    With tick_endpoint, POST /v1/tick runs one bounded pass; callers need one of the setting tick_secrets.
    """
    made = FastAPI(title="Holdfast", version=VERSION, lifespan=_closing, **OPTIONS)
    service = made.state.service = Service(hf)
    tick_secrets = made.state.tick_secrets = secrets.read(hf.settings.tick_secrets) if tick_endpoint else []
    made.add_middleware(FastPath, service=service, prefix="/v1")
    made.add_middleware(Authenticated, service=service, prefix="/v1", guarded=_guarded(), tick_secrets=tick_secrets)
    handle_errors(made)
    for each in ROUTERS:
        made.include_router(each, prefix="/v1", responses=EVERYWHERE)
    made.include_router(health.router, prefix="/v1")
    if tick_endpoint:
        made.include_router(tick.router, prefix="/v1", responses=EVERYWHERE)
    made.state.parameters = of_routes([*ROUTERS, tick.router])
    names = observe.names([*ROUTERS, health.router, tick.router], "/v1")
    figures = made.state.figures = observe.Figures(service, names)
    made.add_middleware(Guard, bounds=Bounds.of(hf.settings))
    made.add_middleware(observe.Counted, figures=figures)
    _describe(made)
    made.add_route("/v1/openapi.json", _Document().get, include_in_schema=False)
    return made


def _guarded() -> set[str]:
    """Return the first part of every path that needs a token."""
    return {route.path.split("/")[1] for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)}


@asynccontextmanager
async def _closing(made: FastAPI) -> AsyncIterator[None]:
    """Close the connections when the application stops. Mounted applications get no lifespan: `hf`'s owner closes."""
    _ = made.openapi()  # takes 0.1 s, so it is built before the first request
    yield
    await made.state.service.hf.aclose()


def _describe(made: FastAPI) -> None:
    """Add to the OpenAPI document what FastAPI cannot infer."""
    describe = made.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        document.setdefault("components", {}).setdefault("schemas", {})["Problem"] = ProblemShape.model_json_schema()
        for path, methods in document["paths"].items():
            if "post" in methods and not path.endswith(REPEATABLE):
                parameters = methods["post"].setdefault("parameters", [])
                parameters += [] if IDEMPOTENCY_KEY in parameters else [IDEMPOTENCY_KEY]  # FastAPI caches the document
        return document

    made.openapi = openapi  # type: ignore[method-assign]


class _Document:
    """The OpenAPI document, encoded once for each place where the application is mounted."""

    def __init__(self) -> None:
        self._encoded: dict[str, bytes] = {}

    async def get(self, request: Request) -> Response:
        root: str = request.scope.get("root_path", "")
        if root not in self._encoded:
            servers = {"servers": [{"url": root}]} if root else {}
            if len(self._encoded) >= MOST_DOCUMENTS:  # clients may control root_path
                self._encoded.clear()
            self._encoded[root] = msgspec.json.encode(request.app.openapi() | servers)
        return Response(self._encoded[root], media_type="application/json")
