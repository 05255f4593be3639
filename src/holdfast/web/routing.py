"""Routes: what each method and path takes, needs and returns, declared by the function that serves it.

A route's function has the context of the request first. By their types, its other parameters are those of the path, the
`Query` and the `Body`; its return type is the response's. The OpenAPI document is made from the same declarations.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec
from starlette.responses import Response

from holdfast.model.token import PREFIX, Caller
from holdfast.web.body import read_body, receive_body
from holdfast.web.context import RequestContext
from holdfast.web.decode import decode_path, decode_query
from holdfast.web.fields import Body, Query
from holdfast.web.problems import Problem
from holdfast.web.service import token_key, unauthenticated

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
K = TypeVar("K")
_FIELD = re.compile(r"{(\w+)}")
TOKEN_FORM = f"A token, `{PREFIX}...`, made by `holdfast tokens create`."


@dataclass(frozen=True, slots=True)
class Needs:
    """The scope that a route's callers need; an empty one: any token. With operator, for all tenants. `of_all`: a scope
    that callers for all tenants need besides, because they see all rows."""

    scope: str
    operator: bool = False
    of_all: str | None = None

    def check(self, caller: Caller) -> None:
        """Raise a 403 unless the caller's token permits the route."""
        make = f"make one with: holdfast tokens create NAME --scopes {self.scope}"
        if self.scope and not caller.may(self.scope):
            make += " --all-tenants" if self.operator else " --tenant TENANT"
            raise Problem(403, f"the token {caller.name!r} lacks the scope {self.scope}; {make}", "missing-scope")
        if self.operator and not caller.everyone:
            detail = f"this is about all tenants, and the token is one tenant's; {make} --all-tenants"
            raise Problem(403, detail, "one-tenant")
        if self.of_all is not None and caller.everyone and not caller.may(self.of_all):
            make += f",{self.of_all} --all-tenants"
            detail = f"the token {caller.name!r} lacks the scope {self.of_all}, because it is for all tenants; {make}"
            raise Problem(403, detail, "missing-scope")


READS, WRITES = Needs("jobs:read"), Needs("jobs:write")
READS_HOOKS, WRITES_HOOKS = Needs("webhooks:read"), Needs("webhooks:write")
OPERATES, WATCHES = Needs("operate", operator=True), Needs("metrics", operator=True)
EXPLAINS = Needs("jobs:read", operator=True)


@dataclass(frozen=True, slots=True)
class Parameter(Generic[K]):
    """A parameter of a route's function that takes the query or the body."""

    name: str
    kind: type[K]


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """What a route does besides calling its function."""

    needs: Needs | None
    status: int = 200
    keyed: bool = True
    """Whether a POST takes an Idempotency-Key."""
    optional_body: bool = False
    """Whether an empty body is a body of defaults."""
    head: bool = False
    """Whether a GET responds to HEAD, too, as probes send it. The server leaves the body out."""
    secret: bool = False
    """Whether the response is stored without its secret."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """What the OpenAPI document says besides."""


class Route:
    """One method and path, and the function that serves it."""

    def __init__(
        self, method: str, path: str, tag: str, act: Callable[..., Awaitable[Any]], options: RouteOptions
    ) -> None:
        self.method = method
        self.path = path
        self.tag = tag
        self.act = act
        self.options = options
        self.label = f"{method} {path}"
        self.keyed = options.keyed and method == "POST"
        hints = get_type_hints(act, include_extras=True)
        self.returns = _returned(hints.pop("return"))
        self.path_kinds = {name: hints[name] for name in _FIELD.findall(path)}
        self.query = _parameter(hints, Query)
        self.body = _parameter(hints, Body)

    @property
    def _is_public(self) -> bool:
        """Whether it is a page or a probe, to whose address others may add parameters."""
        return self.options.needs is None and self.method == "GET"

    async def respond(self, ctx: RequestContext, path_fields: Mapping[str, str]) -> Response:
        """Check a request, call the route's function and return its response."""
        values = decode_path(path_fields, self.path_kinds) if path_fields else {}
        if self.query is not None:
            values[self.query.name] = decode_query(ctx.request.scope["query_string"], self.query.kind)
        elif ctx.request.scope["query_string"] and not self._is_public:
            decode_query(ctx.request.scope["query_string"], Query)  # rejects all parameters
        if self.body is not None:
            values[self.body.name] = await self._read(ctx, self.body.kind)
        if self.keyed and (key := ctx.request.headers.get("idempotency-key")) is not None:
            return await ctx.once(key, lambda: self._stored(ctx, values))
        return self._response(await self.act(ctx, **values))

    async def _read(self, ctx: RequestContext, kind: type[Body]) -> Body:
        headers = ctx.request.headers
        data = await receive_body(ctx.request)
        # Checked again, because the token may have been revoked while the body arrived.
        if self.options.needs is not None and await ctx.service.caller(token_key(headers["authorization"])) is None:
            raise unauthenticated(headers["authorization"])
        data = b"{}" if self.options.optional_body and not data else data
        return await read_body(data, kind, headers.get("content-type", ""), ctx.service, ctx.caller)

    async def _stored(self, ctx: RequestContext, values: Mapping[str, Any]) -> tuple[Response, bytes]:
        """Return the response and the body to store."""
        made = await self.act(ctx, **values)
        response = self._response(made)
        body = (
            msgspec.json.encode(dataclasses.replace(made, secret=None)) if self.options.secret else bytes(response.body)
        )
        return response, body

    def _response(self, value: Any) -> Response:
        if isinstance(value, Response):
            return value
        return Response(msgspec.json.encode(value), self.options.status, None, "application/json")


def _parameter(hints: Mapping[str, Any], base: type[K]) -> Parameter[K] | None:
    found = ((name, kind) for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, base))
    return next((Parameter(name, kind) for name, kind in found), None)


def _returned(hint: Any) -> Any:
    """Return the type of a response's body; None if it is not JSON."""
    kinds = [each for each in get_args(hint) or [hint] if each is not Response]
    return hint if len(kinds) > 1 else next(iter(kinds), None)


class Routes:
    """The routes of one noun."""

    def __init__(self, prefix: str, tag: str) -> None:
        self.prefix = f"/v1{prefix}"
        self.tag = tag
        self.all: list[Route] = []

    def get(self, path: str, needs: Needs | None, **options: Any) -> Callable[[F], F]:
        return self._add("GET", path, RouteOptions(needs, **options))

    def post(self, path: str, needs: Needs | None, **options: Any) -> Callable[[F], F]:
        return self._add("POST", path, RouteOptions(needs, **options))

    def patch(self, path: str, needs: Needs | None, **options: Any) -> Callable[[F], F]:
        return self._add("PATCH", path, RouteOptions(needs, **options))

    def delete(self, path: str, needs: Needs | None, **options: Any) -> Callable[[F], F]:
        return self._add("DELETE", path, RouteOptions(needs, **options))

    def _add(self, method: str, path: str, options: RouteOptions) -> Callable[[F], F]:
        def add(act: F) -> F:
            self.all.append(Route(method, self.prefix + path, self.tag, act, options))
            return act

        return add


Methods = dict[str, Route]


class Router:
    """Finds the route of a request: by its whole path, then by the patterns of paths that begin with the same word."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._plain: dict[str, Methods] = {}
        patterns: dict[str, dict[re.Pattern[str], Methods]] = {}
        for each in routes:
            if not each.path_kinds:
                methods = (each.method, "HEAD") if each.options.head else (each.method,)
                self._plain.setdefault(each.path, {}).update(dict.fromkeys(methods, each))
                continue
            pattern = re.compile(_FIELD.sub(r"(?P<\1>[^/]+)", each.path))
            patterns.setdefault(_word(each.path), {}).setdefault(pattern, {})[each.method] = each
        self._patterns = {word: list(some.items()) for word, some in patterns.items()}

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Return the route of a request and the parameters of its path, or raise a 404 or a 405."""
        found = self._plain.get(path, {})
        if (route := found.get(method)) is not None:
            return route, {}
        allowed = [*found]
        for pattern, methods in self._patterns.get(_word(path), ()):
            if (match := pattern.fullmatch(path)) is not None:
                if (route := methods.get(method)) is not None:
                    return route, match.groupdict()
                allowed += methods
        if not allowed:
            raise Problem(404, f"{method} {path[:200]}: not found")
        allow = ", ".join(sorted(set(allowed)))
        detail = f"{method} {path[:200]}: method not allowed; allowed: {allow}"
        raise Problem(405, detail, headers={"Allow": allow})


def _word(path: str) -> str:
    """Return the first part of a path below /v1."""
    return path[4:].partition("/")[0]
