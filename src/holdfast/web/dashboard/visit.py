"""One request of a viewer, and what pages need of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from holdfast.store.call import Call, Row
from holdfast.web.context import RequestContext
from holdfast.web.dashboard.access import Viewer
from holdfast.web.dashboard.session import csrf
from holdfast.web.guard import route_path
from holdfast.web.problems import Problem
from holdfast.web.routing import Needs
from holdfast.web.service import server_stops

if TYPE_CHECKING:
    from holdfast.web.app import Application
    from holdfast.web.dashboard.app import Dashboard
    from holdfast.web.dashboard.section import Section

T = TypeVar("T")
THEMES = ("auto", "light", "dark")
URL = ":/%#?=@[]!$&'()*+,;"  # characters that mean something in a URL; others are quoted
LONGEST_PATH = 2000  # characters of a path to come back to


class Visit(RequestContext):
    """A request of a viewer. `caller` is NOBODY before sign-in."""

    __slots__ = ("dashboard", "fragments", "key", "viewer")

    def __init__(self, app: Application, request: Request, viewer: Viewer, dashboard: Dashboard, key: bytes) -> None:
        super().__init__(app, viewer.caller or dashboard.nobody, request)
        self.viewer = viewer
        self.dashboard = dashboard
        self.key = key
        self.fragments: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """The path where the service is mounted."""
        return str(self.request.scope.get("root_path", ""))

    @property
    def path(self) -> str:
        """The path of the request below the root."""
        return route_path(self.request.scope)

    @property
    def csrf(self) -> str:
        """The token of this browser's forms."""
        return csrf(self.key, self.viewer.nonce)

    @property
    def theme(self) -> str:
        given = self.request.cookies.get("holdfast_theme", "")
        return given if given in THEMES else "auto"

    @property
    def here(self) -> str:
        """The path of this page with its parameters, to come back to."""
        if self.request.method not in ("GET", "HEAD"):
            return "/"
        given = urlencode(self.given())
        path = self.path + (f"?{given}" if given else "")
        return path if len(path) <= LONGEST_PATH else self.path

    @property
    def form_page(self) -> str | None:
        """The page whose form was posted, if the browser names one of the dashboard."""
        try:
            found = urlsplit(self.request.headers.get("referer", ""))
        except ValueError:
            return None
        own = found.netloc == self.request.headers.get("host") and found.path.startswith(f"{self.root}/")
        path = inside(found._replace(scheme="", netloc="", fragment="").geturl()[len(self.root) :])
        return path if own and path != "/" and self.request.method == "POST" else None

    def given(self) -> list[tuple[str, str]]:
        """Return the parameters of the URL that are not empty."""
        return [(name, value) for name, value in self.request.query_params.items() if value and name != "fragment"]

    def is_in(self, section: Section) -> bool:
        """Return whether the page is below an entry of the navigation."""
        return self.path == section.path or (section.path != "/" and self.path.startswith(f"{section.path}/"))

    def url(self, path: str, /, **query: Any) -> str:
        """Return the URL of a path of the dashboard; values that are None or empty are left out."""
        some = {name: value for name, value in query.items() if value not in (None, "")}
        return self.root + path + (f"?{urlencode(some)}" if some else "")

    def static(self, name: str) -> str:
        """Return the URL of a static file, which changes with the files."""
        return f"{self.root}/static/{self.dashboard.files.version}/{name}"

    def may(self, needs: Needs | None) -> bool:
        """Return whether the viewer has a scope."""
        if needs is None or self.viewer.caller is None:
            return needs is None
        try:
            needs.check(self.caller)
        except Problem:
            return False
        return True

    def redirect(self, path: str) -> Response:
        """Return the response that sends the browser to a path of the dashboard."""
        return Response(None, 303, {"Location": quote(self.root + path, safe=URL)})

    def set_cookie(self, response: Response, name: str, value: str, lifetime: int, *, script: bool = False) -> None:
        """Set a cookie for the dashboard alone; without `script` no script can read it. Lifetime 0 removes it."""
        secure = self.dashboard.access.is_https(self.request)
        options: Any = {"secure": secure, "httponly": not script, "samesite": "strict"}
        response.set_cookie(name, value, lifetime, path=self.root or "/", **options)

    async def shared(self, call: Call[T], fresh: float = 5.0) -> T:
        """Run a call whose result all viewers share for some seconds. The call must contain the view, if it has one."""
        return await self.dashboard.shared.read(call, fresh)

    def forget(self) -> None:
        """Forget shared results, so that the next page shows what an action did."""
        self.dashboard.shared.clear()

    async def figures(self) -> Row:
        """Return the newest snapshot: figures of all tenants, so only for viewers of all."""
        found = self.dashboard.broadcaster.snapshot()
        return await self.shared(self.calls.figures.read(), 1.0) if found is None else found

    async def may_continue(self) -> bool:
        """Return whether a stream may continue: server running, client connected, viewer still allowed."""
        if server_stops() or await self.request.is_disconnected():
            return False
        viewer = await self.dashboard.access.viewer(self.request, self.key)
        return viewer.caller is not None and viewer.caller == self.caller


def inside(path: str | None) -> str:
    """Return a path of the dashboard; the front page for an address of another site."""
    ok = path is not None and path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable()
    return path if ok and path is not None else "/"
