"""How a page is declared: a section of the navigation, its pages, and the actions of their forms.

    section = Section("Queues", "/queues", key="q")

    @section.page("/queues", "queues.html", READS)
    async def show(visit: Visit, query: ListQueues) -> Values: ...

    @section.action("/queues/pause", OPERATES)
    async def pause(visit: Visit, form: Pause) -> Done: ...

By their types, the other parameters of a function are those of the path, the `Query` of a page and the `Form` of an
action. A page returns the values of its template, an action where the browser goes next and what it says there. Blocks
of the template are fragments: `?fragment=NAME` returns that block alone.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from starlette.responses import Response

from holdfast.web.dashboard.form import Form, read_form
from holdfast.web.decode import decode_path
from holdfast.web.fields import Query
from holdfast.web.routing import Needs

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
SIGNED_IN = Needs("")
Values = dict[str, Any]
_FIELD = re.compile(r"{(\w+)}")


@dataclass(frozen=True, slots=True)
class Done:
    """The end of an action: the path that the browser loads next, and a sentence shown there."""

    path: str
    text: str


class SectionPage:
    """One path of the dashboard and the function that serves it: a page, or with method POST an action."""

    def __init__(self, method: str, path: str, template: str, needs: Needs | None, act: Callable[..., Any]) -> None:
        self.method = method
        self.path = path
        self.template = template
        self.needs = needs
        self.label = f"{method} {path}"
        self.pattern = re.compile(_FIELD.sub(r"(?P<\1>[^/]+)", path))
        self._act = act
        hints = get_type_hints(act, include_extras=True)
        self._path_kinds = {name: hints[name] for name in _FIELD.findall(path)}
        self._given = next((item for item in hints.items() if item[0] != "return" and _is_given(item[1])), None)

    async def call(self, visit: Any, path_fields: Mapping[str, str], data: bytes) -> Values | Done | Response:
        """Decode the path and the query or form, and call the function."""
        values = decode_path(path_fields, self._path_kinds) if path_fields else {}
        if self._given is not None:
            values[self._given[0]] = read_form(data, self._given[1])
        found: Values | Response | Done = await self._act(visit, **values)
        return found


def _is_given(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Query | Form)


class Section:
    """An entry of the navigation, reached by the keys g and `key`, with its pages. Without a title it is not shown."""

    def __init__(self, title: str = "", path: str = "", *, key: str = "", needs: Needs | None = None) -> None:
        self.title = title
        self.path = path
        self.key = key
        self.needs = needs
        self.pages: list[SectionPage] = []

    def page(self, path: str, template: str, needs: Needs | None) -> Callable[[F], F]:
        """Declare a page, whose viewers need this scope."""
        return self._add("GET", path, template, needs)

    def action(self, path: str, needs: Needs | None) -> Callable[[F], F]:
        """Declare what a form posts to. Its CSRF token is checked before."""
        return self._add("POST", path, "", needs)

    def _add(self, method: str, path: str, template: str, needs: Needs | None) -> Callable[[F], F]:
        def add(act: F) -> F:
            self.pages.append(SectionPage(method, path, template, needs, act))
            return act

        return add
