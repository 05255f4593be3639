"""The application put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.settings import VERSION
from holdfast.web import batches, dead, flow, health, hooks, jobs, observe, outbox, secrets, tick
from holdfast.web.problems import EVERYWHERE, Problem, ProblemShape, handle_errors
from holdfast.web.quick import Quick
from holdfast.web.service import Service
from holdfast.web.takes import of_routes

if TYPE_CHECKING:
    from holdfast.client import Holdfast

ROUTERS = (jobs.router, batches.router, dead.router, outbox.router, hooks.router, flow.router, observe.router)
REPEATABLE = ("/tick", "/batches/{batch_id}/cancel")  # POSTs without an Idempotency-Key: to repeat them does no harm
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "whoever repeats the request with the same key gets the first answer, and nothing is done again",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}


def app(hf: Holdfast, *, tick_endpoint: bool = False) -> FastAPI:
    """The service as an ASGI application: `app.mount("/holdfast", web.app(hf))` puts it into another one.

    With tick_endpoint, POST /v1/tick runs one bounded pass for whoever knows one of the setting tick_secrets.
    """
    made = FastAPI(
        title="Holdfast", version=VERSION, lifespan=_closing, docs_url=None, redoc_url=None,
        openapi_url="/v1/openapi.json", separate_input_output_schemas=False, strict_content_type=False,
    )  # fmt: skip
    made.state.service = Service(hf)
    made.add_middleware(Quick, service=made.state.service, prefix="/v1")
    handle_errors(made)
    for each in ROUTERS:
        made.include_router(each, prefix="/v1", responses=EVERYWHERE)
    made.include_router(health.router, prefix="/v1")
    if tick_endpoint:
        made.state.tick_secrets = secrets.read(hf.settings.tick_secrets)
        made.include_router(tick.router, prefix="/v1", responses=EVERYWHERE)
    made.state.takes = of_routes([*ROUTERS, tick.router])
    figures = made.state.figures = observe.Figures(
        made.state.service, observe.names([*ROUTERS, health.router, tick.router], "/v1")
    )
    made.add_middleware(Bounded, most=hf.settings.max_body)
    made.add_middleware(observe.Counted, figures=figures)
    _describe(made)
    return made


@asynccontextmanager
async def _closing(made: FastAPI) -> AsyncIterator[None]:
    """Where it is the main application it closes its connections; mounted, whoever has `hf` does."""
    yield
    await made.state.service.hf.aclose()


def _describe(made: FastAPI) -> None:
    """What routes have in common, and FastAPI does not see."""
    describe = made.openapi

    def openapi() -> dict[str, Any]:
        told = describe()
        told.setdefault("components", {}).setdefault("schemas", {})["Problem"] = ProblemShape.model_json_schema()
        for path, methods in told["paths"].items():
            if "post" in methods and not path.endswith(REPEATABLE):
                said = methods["post"].setdefault("parameters", [])
                said += [] if IDEMPOTENCY_KEY in said else [IDEMPOTENCY_KEY]  # the document is made once and kept
        return told

    made.openapi = openapi  # type: ignore[method-assign]


class Bounded:
    """Refuses bodies that are too large, whatever length they claim, and says what must be on every answer."""

    def __init__(self, inner: ASGIApp, most: int) -> None:
        self._inner = inner
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        claimed = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if claimed.isdigit() and int(claimed) > self._most:
            await self._refused()(scope, receive, send)
            return
        await self._inner(scope, self._counted(receive), _marked(send))

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def counting() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise self._problem()
            return message

        return counting

    def _problem(self) -> Problem:
        return Problem(
            413, f"the body is larger than {self._most:,} bytes; send fewer jobs, or raise HOLDFAST_MAX_BODY"
        )

    def _refused(self) -> ASGIApp:
        return self._problem().response()


def _marked(send: Send) -> Send:
    async def marking(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message["headers"], (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"),
            ]  # fmt: skip
        await send(message)

    return marking
