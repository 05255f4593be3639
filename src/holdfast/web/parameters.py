"""The query parameters and body fields of each route, to reject unknown names and suggest the nearest one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Parameters:
    """A route's query parameters, the fields of its body, and the required ones among them."""

    query: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()


def of_routes(routers: Iterable[APIRouter]) -> dict[Any, Parameters]:
    """Return what each route takes, by its function."""
    routes = (each for router in routers for each in router.routes if isinstance(each, APIRoute))
    return {each.endpoint: _of_route(each) for each in routes}


def _of_route(route: APIRoute) -> Parameters:
    bodies = [each.field_info.annotation for each in route.dependant.body_params]
    models = [kind for body in bodies for kind in (body, *get_args(body)) if _is_model(kind)]
    fields = {name: field for model in models for name, field in model.model_fields.items()}
    required = tuple(name for name, field in fields.items() if field.is_required())
    return Parameters(frozenset(each.alias for each in route.dependant.query_params), frozenset(fields), required)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def parameters_of(request: Request) -> Parameters:
    """Return what the route of a request takes."""
    found: Parameters = request.app.state.parameters.get(request.scope.get("endpoint"), Parameters())
    return found


def unknown_parameter(request: Request) -> str | None:
    """Return an error text for the first unknown query parameter, or None.

    Ignoring it would be dangerous: a misspelled filter would match everything."""
    known = parameters_of(request).query
    if (name := next((each for each in request.query_params if each not in known), None)) is None:
        return None
    return f"query.{name[:100]}: no such parameter{near(name, known)}"


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint: the nearest known name, or all of them."""
    found = difflib.get_close_matches(name, known := sorted(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else f"; known: {', '.join(known) or 'none'}"
