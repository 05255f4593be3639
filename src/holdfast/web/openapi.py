"""The OpenAPI document, made from the declarations of the routes."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.settings import VERSION
from holdfast.web import examples
from holdfast.web.fields import field_schema
from holdfast.web.problems import MEDIA_TYPE, title
from holdfast.web.routing import TOKEN_FORM, Route

Schema = dict[str, Any]
EVERYWHERE = (400, 401, 403, 422, 429, 500, 503)
FOR_ONE = (404,)
FOR_CHANGES = (404, 409, 413)
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "a repeated request with the same key gets the stored first response and has no further effect",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}


class Problem(msgspec.Struct):
    """The body of every error."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None
    checks: dict[str, str] | None = None


def make_document(routes: Sequence[Route]) -> Schema:
    """Return the document of these routes."""
    schemas = _Schemas(routes)
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    token = {"type": "http", "scheme": "bearer", "description": TOKEN_FORM}
    secret = {"type": "apiKey", "in": "header", "name": "x-internal-secret", "description": "One of the tick secrets."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": VERSION},
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": {"token": token, "secret": secret}},
    }


class _Schemas:
    """The JSON schemas of all types that the routes take and return."""

    def __init__(self, routes: Iterable[Route]) -> None:
        kinds: list[Any] = [Problem]
        for route in routes:
            kinds += [] if route.query is None else [each.type for each in _fields(route.query.kind)]
            kinds += [] if route.body is None else [route.body.kind]
            kinds += [] if route.returns is None else [route.returns]
            kinds += route.path_kinds.values()
        template = "#/components/schemas/{name}"
        found, components = msgspec.json.schema_components(kinds, schema_hook=field_schema, ref_template=template)
        self._of = {repr(kind): schema for kind, schema in zip(kinds, found, strict=True)}
        self.components: Schema = dict(sorted(components.items()))
        for kind in _named(kinds):
            if (schema := self.components.get(kind.__name__)) is not None:
                _describe(schema.get("properties", {}), _docs(kind))

    def of(self, kind: Any) -> Schema:
        return dict(self._of[repr(kind)])


def _named(kinds: Iterable[Any]) -> set[type]:
    """Return the classes with fields among types, and among the types of their fields."""
    found: set[type] = set()
    todo = list(kinds)
    while todo:
        kind = todo.pop()
        if isinstance(kind, type) and kind.__module__.startswith("holdfast.") and kind not in found:
            found.add(kind)
            todo += inspect.get_annotations(kind, eval_str=True).values()
        todo += getattr(kind, "__args__", ())
    return found


def _describe(properties: Schema, docs: Mapping[str, str]) -> None:
    for name, text in docs.items():
        if name in properties:
            properties[name] = {**properties[name], "description": text}


def _docs(kind: type) -> dict[str, str]:
    """Return the docstrings of a class's fields, its bases' included."""
    docs: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("holdfast."):
            body = _class_bodies(each.__module__)[each.__name__]
            for field, text in itertools.pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    docs[ast.unparse(field.target)] = " ".join(str(ast.literal_eval(text.value)).split())
    return docs


@functools.cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {each.name: each.body for each in tree.body if isinstance(each, ast.ClassDef)}


def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _operation(route: Route, schemas: _Schemas) -> Schema:
    doc = " ".join((route.act.__doc__ or "").split())
    operation: Schema = {
        "tags": [route.tag],
        "summary": route.act.__name__.replace("_", " "),
        "description": doc,
        "operationId": f"{route.tag}_{route.act.__name__}",
        "parameters": [*_parameters(route, schemas), *route.options.described.get("parameters", ())],
        "responses": _responses(route, schemas),
    }
    if route.body is not None:
        example = examples.BODIES[route.body.kind.__name__]
        content = {"application/json": {"schema": schemas.of(route.body.kind), "example": example}}
        operation["requestBody"] = {"required": not route.options.optional_body, "content": content}
    if (needs := route.options.needs) is not None:
        operation["security"] = [{"token": [needs.scope]}]
        operation["x-all-tenants"] = needs.operator
    elif route.tag == "tick":
        operation["security"] = [{"secret": []}]
    return {name: value for name, value in operation.items() if value != []}


def _parameters(route: Route, schemas: _Schemas) -> list[Schema]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": schemas.of(kind), "example": examples.parameter(name)}
        for name, kind in route.path_kinds.items()
    ]
    if route.query is not None:
        docs = _docs(route.query.kind)
        found += [_query_parameter(each, docs, schemas) for each in _fields(route.query.kind)]
    return found + ([IDEMPOTENCY_KEY] if route.keyed else [])


def _query_parameter(field: msgspec.structs.FieldInfo, docs: Mapping[str, str], schemas: _Schemas) -> Schema:
    schema = schemas.of(field.type)
    kinds = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    if kinds:
        schema = dict(kinds[0]) if len(kinds) == 1 else {"anyOf": kinds}
    if field.default is not msgspec.NODEFAULT and field.default is not None:
        schema["default"] = field.default
    parameter = {"name": field.encode_name, "in": "query", "required": field.required, "schema": schema}
    more = {"example": examples.parameter(field.name)} if field.required else {}
    return parameter | more | ({"description": docs[field.name]} if field.name in docs else {})


def _responses(route: Route, schemas: _Schemas) -> Schema:
    good: Schema = {"description": "success"}
    if route.returns is not None:
        good["content"] = {"application/json": {"schema": schemas.of(route.returns)}}
    responses: Schema = {str(route.options.status): good}
    for status, more in route.options.described.get("responses", {}).items():
        responses[status] = responses.get(status, {}) | more
    errors = {*EVERYWHERE, *(FOR_ONE if route.path_kinds else ()), *(() if route.method == "GET" else FOR_CHANGES)}
    problem = {MEDIA_TYPE: {"schema": schemas.of(Problem)}}
    return responses | {str(each): {"description": title(each), "content": problem} for each in sorted(errors)}
