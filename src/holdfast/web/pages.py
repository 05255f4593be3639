"""The OpenAPI document and the API reference, rendered here: no script, and nothing from other hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from holdfast.web.context import RequestContext
from holdfast.web.examples import curl
from holdfast.web.openapi import Schema, make_document
from holdfast.web.problems import Problem
from holdfast.web.routing import Route, Routes

if TYPE_CHECKING:
    from jinja2 import Environment

routes = Routes("", "")
FOLDER = Path(__file__).parent
MOST_PAGES = 10  # in the cache of each kind
CSS = "text/css; charset=utf-8"
STATIC = {"docs.css": CSS, "dashboard/dashboard.css": CSS, "dashboard/icon.svg": "image/svg+xml"}
THEMES = ("light", "dark")
HTML = "text/html; charset=utf-8"
POLICY = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class Pages:
    """The document and the pages of an application, made once for each place where it is mounted."""

    def __init__(self, routes: Sequence[Route], *, dashboard: bool) -> None:
        self._routes = routes
        self._dashboard = dashboard
        self._made: dict[tuple[str, str], bytes] = {}

    @cached_property
    def document(self) -> Schema:
        return make_document(self._routes)

    def encoded(self, root: str) -> bytes:
        """Return the document as JSON."""
        servers = {"servers": [{"url": root}]} if root else {}
        return self._once("document", root, lambda: msgspec.json.encode(self.document | servers))

    def reference(self, root: str, theme: str) -> bytes:
        """Return the API reference as HTML."""
        return self._once(f"reference {theme}", root, lambda: self._render(root, theme))

    def _render(self, root: str, theme: str) -> bytes:
        values = {"root": root, "theme": theme, "document": self.document, "dashboard": self._dashboard}
        return self._templates.get_template("docs.html").render(**values, groups=by_tag(self.document)).encode()

    @cached_property
    def _templates(self) -> Environment:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        loader = FileSystemLoader(FOLDER / "templates")
        options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
        found = Environment(loader=loader, autoescape=True, **options)
        found.filters["schema"] = linked
        found.filters["type_name"] = type_name
        found.filters["curl"] = curl
        return found

    def _once(self, kind: str, root: str, make: Callable[[], bytes]) -> bytes:
        if (kind, root) not in self._made:
            if len(self._made) >= MOST_PAGES:  # clients may control the root path
                self._made.clear()
            self._made[kind, root] = make()
        return self._made[kind, root]


def by_tag(document: Schema) -> dict[str, list[tuple[str, str, Schema]]]:
    """Return the path, method and description of each operation, by tag."""
    found: dict[str, list[tuple[str, str, Schema]]] = {}
    for path, ways in document["paths"].items():
        for method, operation in ways.items():
            found.setdefault(operation["tags"][0], []).append((path, method, operation))
    return found


def type_name(schema: Schema) -> str:
    """Return the name of the component that a schema refers to, or an empty text."""
    return str(schema.get("$ref", "")).rpartition("/")[2]


def linked(schema: Schema) -> Markup:
    """Return a schema in words, with a link to each type."""
    names = {type_name(each) for each in (schema, schema.get("items", {}), *schema.get("anyOf", ()))}
    link = Markup('<a href="#{0}">{0}</a>')
    parts = re.split(r"(\w+)", schema_text(schema))
    return Markup("").join(link.format(each) if each and each in names else each for each in parts)


def schema_text(schema: Schema) -> str:
    """Return a schema in words, such as "integer, 0 to 3" or "Job[]"."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(schema_text, schema["anyOf"])))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "$ref" in schema:
        return type_name(schema)
    if schema.get("type") == "array":
        return schema_text(schema.get("items", {})) + "[]" + _bounds(schema, "minItems", "maxItems", " items")
    words = str(schema.get("format") or schema.get("type") or "any")
    bounds = _bounds(schema, "minimum", "maximum", "") + _bounds(schema, "minLength", "maxLength", " characters")
    return words + bounds


def _bounds(schema: Schema, least: str, most: str, unit: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if high is None:
        return "" if low is None else f", from {low:,.10g}{unit}"
    return f", {'up' if low is None else f'{low:,.10g}'} to {high:,.10g}{unit}"


@routes.get("/openapi.json", None)
async def openapi(ctx: RequestContext) -> Response:
    """Return the OpenAPI document."""
    root = ctx.request.scope.get("root_path", "")
    return Response(ctx.app.pages.encoded(root), media_type="application/json")


@routes.get("/docs", None)
async def docs(ctx: RequestContext) -> Response:
    """Return the API reference as a page."""
    root = ctx.request.scope.get("root_path", "")
    theme = ctx.request.cookies.get("holdfast_theme", "")  # as chosen in the dashboard
    body = ctx.app.pages.reference(root, theme if theme in THEMES else "auto")
    return Response(body, headers=POLICY, media_type=HTML)


@routes.get("/static/{name}", None)
async def static(ctx: RequestContext, name: str) -> Response:
    """Return a file that pages refer to."""
    file = next((each for each in STATIC if each.rpartition("/")[2] == name), None)
    if file is None:
        raise Problem(404, f"there is no file {name[:100]!r}")
    return Response((FOLDER / "static" / file).read_bytes(), media_type=STATIC[file])
