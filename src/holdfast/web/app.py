"""The ASGI application: the routes behind middleware that bounds, counts and authenticates requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.model.token import Caller
from holdfast.web import (
    actions,
    batches,
    dead,
    errors,
    figures,
    health,
    jobs,
    limits,
    observe,
    outbox,
    pages,
    queues,
    secrets,
    signals,
    tick,
    webhooks,
    workers,
)
from holdfast.web.admission import Admission
from holdfast.web.authenticate import AuthenticationMiddleware
from holdfast.web.context import RequestContext
from holdfast.web.dashboard.app import Dashboard
from holdfast.web.guard import Bounds, Guard, route_path
from holdfast.web.problems import ErrorMiddleware, Problem, of
from holdfast.web.routing import Route, Router
from holdfast.web.service import CALLER, Service

if TYPE_CHECKING:
    from holdfast.client import Holdfast

NOUNS = (
    jobs,
    batches,
    dead,
    errors,
    actions,
    outbox,
    signals,
    webhooks,
    limits,
    queues,
    workers,
    figures,
    observe,
    health,
    pages,
)
NOBODY = Caller("", "", "", frozenset(), None)  # the caller of routes that need no token


class Application:
    """The service as an ASGI application, alone or mounted in another one."""

    def __init__(self, hf: Holdfast, *, tick_endpoint: bool = False, open_on_loopback: bool = False) -> None:
        self.service = Service(hf)
        self.admission = Admission(hf.settings.max_requests)
        tick_secrets = secrets.read(hf.settings.tick_secrets) if tick_endpoint else []
        self.routes: list[Route] = [route for noun in NOUNS for route in noun.routes.all]
        self.routes += tick.routes.all if tick_endpoint else []
        self._router = Router(self.routes)
        self._ticks = tick_endpoint
        self.dashboard = Dashboard(self, open_on_loopback=open_on_loopback) if hf.settings.dashboard else None
        pages_ = set() if self.dashboard is None else self.dashboard.labels
        self.figures = observe.Figures(self.service, {route.label for route in self.routes} | pages_)
        self.pages = pages.Pages([each for each in self.routes if each.tag], dashboard=hf.settings.dashboard)
        guarded = {route.path.split("/")[2] for route in self.routes if route.options.needs is not None}
        inner = AuthenticationMiddleware(self._respond, self.service, self.admission, "/v1", guarded, tick_secrets)
        self._outermost = observe.RequestCounter(Guard(ErrorMiddleware(inner), Bounds.of(hf.settings)), self.figures)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._outermost(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000, "reason": "no websockets here"})

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return self.pages.document

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._response(request)
        except Problem as problem:
            response = problem.response()
        except HoldfastError as error:
            response = of(error).response()
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        path = route_path(request.scope)
        if self.dashboard is not None and not f"{path}/".startswith("/v1/"):
            return await self.dashboard.respond(request, observe.ROUTE)
        try:
            route, fields = self._router.find(request.method, path)
        except Problem as problem:
            raise self._with_remedy(problem, request, path) from None
        request.scope[observe.ROUTE] = route.label
        caller: Caller = request.scope.get(CALLER, NOBODY)
        if route.options.needs is not None:
            route.options.needs.check(caller)
        return await route.respond(RequestContext(self, caller, request), fields)

    def _with_remedy(self, problem: Problem, request: Request, path: str) -> Problem:
        if problem.status != 404:
            return problem
        off = path == "/v1/tick" and not self._ticks
        root = request.scope.get("root_path", "")
        remedy = "started without --tick" if off else f"{root}/v1/openapi.json lists all paths"
        return Problem(404, f"{problem.detail}; {remedy}")

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        """Close the connections when the application stops. Mounted ones have no lifespan: their host closes hf."""
        message: Message = await receive()
        self.openapi()  # takes 0.1 s, so it is built before the first request
        await send({"type": "lifespan.startup.complete"})
        while message["type"] != "lifespan.shutdown":
            message = await receive()
        await self.service.hf.aclose()
        await send({"type": "lifespan.shutdown.complete"})


def app(hf: Holdfast, *, tick_endpoint: bool = False, open_on_loopback: bool = False) -> Application:
    """Return the service as an ASGI application. Mount it in another one with `app.mount("/holdfast", web.app(hf))`.

    With tick_endpoint, POST /v1/tick runs one bounded pass; callers need one of the setting tick_secrets. With
    open_on_loopback, the dashboard needs no sign-in from this machine, for development.
    """
    return Application(hf, tick_endpoint=tick_endpoint, open_on_loopback=open_on_loopback)
