"""The dashboard of an application: find the page of a request, authenticate, and render."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast.model import health
from holdfast.model.token import Caller
from holdfast.web.body import receive_form
from holdfast.web.dashboard import (
    actions,
    audit,
    batches,
    dead,
    endpoints,
    jobs,
    limits,
    live,
    outbox,
    overview,
    queues,
    schedules,
    signin,
    static,
    tasks,
    tenants,
    tokens,
    usage,
    webhooks,
    workers,
)
from holdfast.web.dashboard import session as sessions
from holdfast.web.dashboard.access import VISITOR, Access
from holdfast.web.dashboard.form import pairs
from holdfast.web.dashboard.render import Renderer
from holdfast.web.dashboard.section import Done, Section, SectionPage, Values
from holdfast.web.dashboard.shared import Shared
from holdfast.web.dashboard.visit import Visit
from holdfast.web.guard import route_path
from holdfast.web.pages import HTML
from holdfast.web.problems import Problem, of, title
from holdfast.web.routing import OPERATES, READS, WRITES
from holdfast.web.service import server_stops

if TYPE_CHECKING:
    from holdfast.web.app import Application

SECTIONS = (
    overview,
    jobs,
    dead,
    queues,
    batches,
    schedules,
    tasks,
    tenants,
    limits,
    workers,
    outbox,
    endpoints,
    webhooks,
    usage,
    audit,
    tokens,
    actions,
    live,
    signin,
)
"""The modules of the dashboard, in the order of the navigation."""
NOBODY = Caller("", "", "", frozenset(), None)
NOTE = "holdfast_note"  # cookie: what the last action did, shown once
LONGEST_NOTE = 1000
LARGEST_FORM = 1_048_576  # bytes: the arguments of a job that can be edited, URL-encoded, are the most
OPEN_FORM = 65_536  # bytes of a form that needs no sign-in: a form is decoded on the event loop
POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Dashboard:
    """The pages of one application, beside its API."""

    nobody = NOBODY

    def __init__(self, app: Application, *, open_on_loopback: bool = False) -> None:
        self._app = app
        self._service = app.service
        self._renderer = Renderer()
        self.files = static.StaticFiles()
        self.access = Access(app.service, open_on_loopback=open_on_loopback)
        self.shared = Shared(app.service.run)
        self.broadcaster = live.Broadcaster(
            lambda jobs: app.service.run(app.service.hf.database.calls.figures.marks(jobs))
        )
        self.sections: list[Section] = [module.section for module in SECTIONS]
        self._pages = [page for section in self.sections for page in section.pages]
        self.labels = {page.label for page in self._pages} | {"GET /static"}

    def stops(self) -> bool:
        """Return whether streams should end."""
        return server_stops()

    async def respond(self, request: Request, label: str) -> Response:
        """Return the response of a path outside of /v1; note the label of its page in the scope."""
        path = route_path(request.scope)
        if path.startswith("/static/") and path.count("/") == 3:
            request.scope[label] = "GET /static"
            return self.files.response(*path.split("/")[2:])
        key = await self._key()
        viewer = await self.access.viewer(request, key)
        visit = Visit(self._app, request, viewer, self, key)
        try:
            if viewer.caller is not None:
                await self._app.admission.enter(request.scope, viewer.caller)
            response = await self._page(visit, label)
        except Problem as problem:
            response = await self._problem(visit, problem)
        except HoldfastError as error:
            response = await self._problem(visit, of(error))
        if viewer.new:
            visit.set_cookie(response, VISITOR, sessions.encode(viewer.nonce), 86_400)
        response.headers.update(POLICY)
        return response

    async def _key(self) -> bytes:
        """Return the key of sessions, derived from the one of cursors."""
        return blake2b(key=await self._service.cursor_key(), person=b"dashboard").digest()

    async def _page(self, visit: Visit, label: str) -> Response:
        page, fields = self._find(visit.request.method, visit.path)
        visit.request.scope[label] = page.label
        if page.needs is not None:
            if visit.viewer.caller is None:
                return self._sign_in(visit)
            page.needs.check(visit.caller)
        if page.method == "POST":
            return await self._act(visit, page, fields)
        found = await page.call(visit, fields, self._query(visit))
        return await self._finished(visit, page, found)

    def _find(self, method: str, path: str) -> tuple[SectionPage, Mapping[str, str]]:
        method = "GET" if method == "HEAD" else method
        matching = [(page, found.groupdict()) for page in self._pages if (found := page.pattern.fullmatch(path))]
        for page, fields in matching:
            if page.method == method:
                return page, fields
        if matching:
            allow = ", ".join(sorted({page.method for page, _ in matching}))
            raise Problem(405, f"{method} {path[:200]}: allowed: {allow}", headers={"Allow": allow})
        raise Problem(404, f"there is no page {path[:200]}")

    def _query(self, visit: Visit) -> bytes:
        """Return the query without the names of fragments, which are noted."""
        query: bytes = visit.request.scope["query_string"]
        parts = [each for each in query.split(b"&") if not each.startswith(b"fragment=")]
        named = visit.request.query_params.get("fragment", "")
        visit.fragments = tuple(dict.fromkeys(each for each in named.split(",") if each))[:20]
        return b"&".join(parts)

    async def _act(self, visit: Visit, page: SectionPage, fields: Mapping[str, str]) -> Response:
        """Check the form's token, act, and send the browser on."""
        data = await receive_form(visit.request, OPEN_FORM if page.needs is None else LARGEST_FORM)
        given = [value for name, value in pairs(data) if name == "csrf"]
        site = visit.request.headers.get("sec-fetch-site", "same-origin")
        if site not in ("same-origin", "none") or not sessions.is_csrf(visit.key, visit.viewer.nonce, "".join(given)):
            raise Problem(403, "the form is not from this page, or is too old; load the page again", "csrf")
        rest = b"&".join(each for each in data.split(b"&") if not each.startswith(b"csrf="))
        return await self._finished(visit, page, await page.call(visit, fields, rest))

    async def _finished(self, visit: Visit, page: SectionPage, found: Values | Done | Response) -> Response:
        if isinstance(found, Response):
            return found
        if not isinstance(found, Done):
            return await self.html(visit, page.template, found)
        response = visit.redirect(found.path)
        visit.set_cookie(response, NOTE, sessions.encode(found.text[:LONGEST_NOTE].encode("utf-8", "replace")), 60)
        return response

    def _sign_in(self, visit: Visit) -> Response:
        """Send a browser to the sign-in; scripts get the status alone."""
        query = visit.request.url.query
        visit.fragments = ()
        if visit.path == "/live" or "fragment=" in query or visit.request.method == "POST":
            raise Problem(401, "sign in again")
        return Response(
            None, 303, {"Location": visit.url("/sign-in", next=visit.path + (f"?{query}" if query else ""))}
        )

    async def html(self, visit: Visit, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        """Return a page, or those of its blocks that the request names."""
        noted = visit.request.cookies.get(NOTE, "")
        note = sessions.decode(noted).decode("utf-8", "replace")[:LONGEST_NOTE]
        whole = {
            "visit": visit,
            "root": visit.root,
            "reads": READS,
            "operates": OPERATES,
            "writes": WRITES,
            "note": note,
            "shell": None,
            **values,
        }
        if not visit.fragments or "status" in visit.fragments:
            whole["shell"] = await self._shell(visit)
        if visit.fragments:
            return Response(self._renderer.fragments(template, visit.fragments, whole), status, media_type=HTML)
        response = Response(self._renderer.page(template, whole), status, media_type=HTML)
        if noted:
            visit.set_cookie(response, NOTE, "", 0)
        return response

    async def _shell(self, visit: Visit) -> Mapping[str, Any] | None:
        """Return what the header says to viewers of all tenants: the level, its causes, the age of the figures."""
        if visit.viewer.caller is None or not visit.caller.everyone:
            return None
        try:
            figures, levels, workers = await asyncio.gather(
                visit.figures(),
                visit.shared(visit.calls.figures.levels(), 10.0),
                visit.shared(visit.calls.workers.list(), queues.WORKERS),
            )
        except HoldfastError:
            return {"level": "critical", "bad": ["database"], "age": None}
        found = health.causes(levels, figures["queues"], workers)
        return {"level": health.worst(found), "bad": [each.text for each in found], "age": figures["age"]}

    def navigation(self, visit: Visit) -> Sequence[Section]:
        """Return the entries that the viewer may open."""
        return [each for each in self.sections if each.title and visit.may(each.needs)]

    async def _problem(self, visit: Visit, problem: Problem) -> Response:
        """Return an error as a page for browsers, and as the API does for programs."""
        visit.fragments = ()
        if "text/html" not in visit.request.headers.get("accept", ""):
            return problem.response()
        values = {"title": title(problem.status), "problem": problem}
        response = await self.html(visit, "problem.html", values, problem.status)
        response.headers.update(problem.headers or {})
        return response
