"""What each route takes, as it declares it: for those who spell it differently."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Takes:
    """A route's query parameters, the fields that its body may have, and those that it must have."""

    query: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()


def of_routes(routers: Iterable[APIRouter]) -> dict[Any, Takes]:
    """By the route's function."""
    routes = (each for router in routers for each in router.routes if isinstance(each, APIRoute))
    return {each.endpoint: _of_route(each) for each in routes}


def _of_route(route: APIRoute) -> Takes:
    bodies = [each.field_info.annotation for each in route.dependant.body_params]
    models = [kind for body in bodies for kind in (body, *get_args(body)) if _is_model(kind)]
    fields = {name: field for model in models for name, field in model.model_fields.items()}
    required = tuple(name for name, field in fields.items() if field.is_required())
    return Takes(frozenset(each.alias for each in route.dependant.query_params), frozenset(fields), required)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def takes(request: Request) -> Takes:
    """What the route of a request takes."""
    found: Takes = request.app.state.takes.get(request.scope.get("endpoint"), Takes())
    return found


def stray(request: Request) -> str | None:
    """What is wrong with the names of a request's query parameters. One that is not known must not be left out of
    account: a filter with a slip in it would match everything."""
    known = takes(request).query
    if (name := next((each for each in request.query_params if each not in known), None)) is None:
        return None
    return f"query.{name[:100]}: no such parameter{near(name, known)}"


def near(name: str, known: Iterable[str]) -> str:
    """What may have been meant."""
    found = difflib.get_close_matches(name, known := sorted(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else f"; known are: {', '.join(known) or 'none'}"
