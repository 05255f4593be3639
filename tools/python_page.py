"""The Python reference: every public name with its signature, its fields and its docstring."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec

import holdfast
from holdfast import effects, testing, web
from holdfast.client.batches import Batches
from holdfast.client.database import Database
from holdfast.client.dead import DeadLetters
from holdfast.client.jobs import Jobs
from holdfast.client.limits import Limits
from holdfast.client.operation import is_operation
from holdfast.client.outbox import Outbox
from holdfast.client.queues import Queues
from holdfast.client.registry import Registry
from holdfast.client.schedules import Schedules
from holdfast.client.tokens import Tokens
from holdfast.client.webhooks import Webhooks
from holdfast.client.workers import Workers
from holdfast.telemetry import metrics, otel, sentry

# The public names of modules without __all__.
NAMED = {metrics: ("DatabaseMetrics", "exposition"), sentry: ("Reporter",), otel: ("trace",)}

# The parts of an application: hf.batches, hf.dead and so on.
PARTS = (Batches, Database, DeadLetters, Jobs, Limits, Outbox, Queues, Registry, Schedules, Tokens, Webhooks, Workers)


def python_page(made: str) -> str:
    """Return the whole page; `made` is a note about its source."""
    intro = (
        "The exports of `holdfast`, `holdfast.effects`, `holdfast.testing` and `holdfast.web`, and the public names\n"
    )
    parts = ["# Python\n\n" + made + intro + "of `holdfast.telemetry`.\n"]
    for module in (holdfast, effects, testing, web, *NAMED):
        parts.append(f"# {module.__name__}\n")
        parts += [_entry(name, getattr(module, name)) for name in _public(module)]
        if module is holdfast:
            parts += [_entry(noun.__name__, noun) for noun in PARTS]
    return "\n".join(parts)


def _public(module: ModuleType) -> list[str]:
    names = NAMED.get(module) or module.__all__
    return sorted((name for name in names if not name.startswith("__")), key=str.lower)


def _entry(name: str, thing: Any) -> str:
    if inspect.isclass(thing):
        return "\n".join(_class(name, thing))
    if inspect.isroutine(thing):
        return f"## {name}\n\n```python\n{name}{_signature(thing)}\n```\n\n{_text(thing)}\n"
    return f"## {name}\n\nA value: a `{type(thing).__name__}`.\n"


def _class(name: str, cls: type[Any]) -> Iterator[str]:
    above = [base.__name__ for base in cls.__bases__ if base.__name__ in holdfast.__all__]
    yield f"## {name}\n\n{_text(cls)}\n"
    if above:
        yield f"A kind of `{above[0]}`.\n"
    if issubclass(cls, enum.Enum):
        yield ", ".join(f"`{each.name}` ({each.value})" for each in cls) + "\n"
    elif fields := _fields(cls):
        yield "| field | type |\n|---|---|"
        yield "\n".join(fields) + "\n"
    elif "__init__" in vars(cls):
        yield f"```python\n{name}{_signature(cls.__init__)}\n```\n"
    members = list(_members(cls))
    if members:
        yield "\n".join(members) + "\n"


def _fields(cls: type[Any]) -> list[str]:
    """Return the rows of a table of fields, of a dataclass or of a msgspec Struct."""
    if dataclasses.is_dataclass(cls):
        kinds = {each.name: each.type for each in dataclasses.fields(cls)}
    elif issubclass(cls, msgspec.Struct):
        kinds = {name: cls.__annotations__[name] for name in cls.__struct_fields__}
    else:
        return []
    return [
        f"| `{name}` | `{str(kind).replace('|', 'or')}` |" for name, kind in kinds.items() if not name.startswith("_")
    ]


def _members(cls: type[Any]) -> Iterator[str]:
    """Yield the public methods and properties of a class and its mixins. Those without a docstring are internal."""
    parts = [each for each in cls.__bases__ if each.__module__.startswith("holdfast.") and not _exported(each)]
    for name, found in [item for each in (cls, *parts) for item in vars(each).items()]:
        thing = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        if name.startswith("_") or not inspect.getdoc(thing):
            continue
        if is_operation(thing):
            if not (inspect.iscoroutinefunction(thing) or inspect.isasyncgenfunction(thing)):
                yield _operation(name, thing)
        elif isinstance(thing, property | functools.cached_property):
            yield f"- `{name}`: {_text(thing, 2)}"
        elif inspect.isfunction(thing):
            wait = "await " if inspect.iscoroutinefunction(thing) else ""
            yield f"- `{wait}{name}{_signature(thing)}`: {_text(thing, 2)}"


def _operation(name: str, thing: Any) -> str:
    wait = "async for ... in" if inspect.isgeneratorfunction(thing) else "await"
    signature = _signature(thing).replace("builtins.", "").replace("-> MoveSteps", "-> Iterator[Moved]")
    signature = re.sub(r" -> (?:Call|Steps)\[(.*)\]$", r" -> \1", signature)
    signature = re.sub(r" -> Generator\[.*Items\[(.*)\], Any, None\]$", r" -> Iterator[\1]", signature)
    return f"- `{name}{signature}`, and `{wait} a{name}(...)`: {_text(thing, 2)}"


def _exported(cls: type[Any]) -> bool:
    return any(cls.__name__ in module.__all__ for module in (holdfast, testing))


class _Plain(str):
    """An annotation without the quotes that inspect would add."""

    __slots__ = ()
    __repr__ = str.__str__


def _signature(thing: Any) -> str:
    given = inspect.signature(thing)
    kept = [
        each.replace(annotation=_plain(each.annotation))
        for each in given.parameters.values()
        if each.name not in ("self", "cls", "_misplaced")
    ]
    text = str(given.replace(parameters=kept, return_annotation=_plain(given.return_annotation)))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _plain(annotation: Any) -> Any:
    return _Plain(annotation) if isinstance(annotation, str) else annotation


def _text(thing: Any, indent: int = 0) -> str:
    return (inspect.getdoc(thing) or "").replace("\n", "\n" + " " * indent).replace("\n" + " " * indent + "\n", "\n\n")
