"""Signatures: how arguments become a payload and a payload arguments, and which handlers are refused."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import CONTEXT, ConfigurationError, Context, Holdfast, InvalidPayload, UsageError
from holdfast.model.signature import Signature

LIMITS = {"max_size": 100_000, "max_depth": 50}


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Order:
    id: int
    lines: list[str]


def plain(a: int, b: str) -> None: ...
def defaults(a: int, b: str = "x", c: list[int] | None = None) -> None: ...
def kw_only(a: int, *, b: str, c: int = 3) -> None: ...
def nothing() -> None: ...
def untyped(a, b=1): ...
def rich(when: datetime.datetime, who: uuid.UUID, color: Color, order: Order) -> None: ...
def context_first(ctx: Context, a: int) -> None: ...
def context_keyword(a: int, *, ctx: Context) -> None: ...
def context_default(a: int, *, ctx: Context = CONTEXT) -> None: ...
def context_middle(a: int, ctx: Context, b: int = 2) -> None: ...


def carried(handler: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call after a round trip through JSON."""
    signature = Signature("t", handler)
    return signature.decode(signature.encode(args, kwargs, **LIMITS))


def by_name(handler: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the same by parameter name, without those left to their defaults."""
    args, kwargs = carried(handler, *args, **kwargs)
    signature = Signature("t", handler)
    if signature.context_first:
        args = (CONTEXT, *args)
    elif signature.context_name:
        kwargs[signature.context_name] = CONTEXT
    bound = inspect.signature(handler).bind(*args, **kwargs).arguments
    return {name: value for name, value in bound.items() if name != signature.context_name}


@pytest.mark.parametrize(
    ("handler", "args", "kwargs", "expected"),
    [
        (plain, (1, "x"), {}, {"a": 1, "b": "x"}),
        (plain, (1,), {"b": "x"}, {"a": 1, "b": "x"}),
        (plain, (), {"b": "x", "a": 1}, {"a": 1, "b": "x"}),
        (nothing, (), {}, {}),
        (defaults, (1,), {}, {"a": 1}),
        (defaults, (1, "y"), {}, {"a": 1, "b": "y"}),
        (defaults, (1,), {"c": [1, 2]}, {"a": 1, "c": [1, 2]}),
        (defaults, (1,), {"c": None}, {"a": 1, "c": None}),
        (kw_only, (1,), {"b": "x"}, {"a": 1, "b": "x"}),
        (kw_only, (), {"a": 1, "b": "x", "c": 4}, {"a": 1, "b": "x", "c": 4}),
        (untyped, ([1, {"k": None}],), {}, {"a": [1, {"k": None}]}),
        (untyped, (None,), {"b": None}, {"a": None, "b": None}),
        (context_first, (1,), {}, {"a": 1}),
        (context_first, (), {"a": 1}, {"a": 1}),
        (context_keyword, (1,), {}, {"a": 1}),
        (context_default, (1,), {}, {"a": 1}),
        (context_middle, (1,), {"b": 5}, {"a": 1, "b": 5}),
    ],
)
def test_arguments_arrive_as_they_were_given(
    handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert by_name(handler, *args, **kwargs) == expected


def test_rich_types_arrive_as_themselves() -> None:
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)
    who, order = uuid.uuid4(), Order(7, ["a", "b"])
    assert by_name(rich, when, who, Color.RED, order) == {"when": when, "who": who, "color": Color.RED, "order": order}


def test_a_default_that_was_not_given_is_not_stored() -> None:
    signature = Signature("t", defaults)
    assert signature.encode((1,), {}, **LIMITS) == b'{"a":1}'
    assert signature.decode(b'{"a":1}') == ((), {"a": 1})


def test_a_payload_of_an_older_handler_takes_the_new_default() -> None:
    args, kwargs = Signature("t", defaults).decode('{"a": 1, "b": "old"}')
    assert {**kwargs, **dict(zip("abc", args, strict=False))} == {"a": 1, "b": "old"}


@pytest.mark.parametrize(
    ("handler", "args", "kwargs"),
    [
        (plain, (1,), {}),
        (plain, (1, "x", 2), {}),
        (plain, (1, "x"), {"c": 1}),
        (plain, (1,), {"a": 2, "b": "x"}),
        (plain, (), {}),
        (kw_only, (1, "x"), {}),
        (nothing, (1,), {}),
        (context_first, (CONTEXT, 1), {}),
        (context_keyword, (1, CONTEXT), {}),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_signature(
    handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(InvalidPayload, match=r"task 't' takes \("):
        Signature("t", handler).encode(args, kwargs, **LIMITS)


@pytest.mark.parametrize(
    ("handler", "args"),
    [
        (plain, ("1", "x")),
        (plain, (1, 2)),
        (plain, (1.5, "x")),
        (plain, (True, "x")),
        (plain, (None, "x")),
        (defaults, (1, None)),
        (defaults, (1, "x", [1, "2"])),
        (rich, ("soon", uuid.uuid4(), Color.RED, Order(1, []))),
        (rich, (datetime.datetime(2026, 1, 1), "nobody", Color.RED, Order(1, []))),
        (rich, (datetime.datetime(2026, 1, 1), uuid.uuid4(), "blue", Order(1, []))),
        (rich, (datetime.datetime(2026, 1, 1), uuid.uuid4(), "red", {"id": "x", "lines": []})),
    ],
)
def test_arguments_of_wrong_types_are_refused_at_enqueue(handler: Callable[..., Any], args: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidPayload, match="does not fit"):
        Signature("t", handler).encode(args, {}, **LIMITS)


@pytest.mark.parametrize(
    "data",
    ["", "{", "[]", "null", '{"a": 1}', '{"a": 1, "b": "x", "c": 2}', '{"a": "1", "b": "x"}', b"\xff"],
    ids=ascii,
)
def test_a_payload_that_does_not_fit_is_refused_at_run(data: str | bytes) -> None:
    with pytest.raises(InvalidPayload, match="task 't'"):
        Signature("t", plain).decode(data)


@pytest.mark.parametrize("handler", [context_first, context_keyword, context_default, context_middle])
def test_the_context_is_given_by_the_worker_not_by_enqueue(handler: Callable[..., Any]) -> None:
    signature = Signature("t", handler)
    assert signature.context_name == "ctx"
    with pytest.raises(InvalidPayload, match="'ctx' is given to task 't' by the worker, not by enqueue"):
        signature.encode((1,), {"ctx": None}, **LIMITS)


def test_only_a_context_in_the_first_place_is_passed_in_place() -> None:
    handlers = (context_first, context_keyword, context_default, context_middle, plain)
    assert [Signature("t", h).context_first for h in handlers] == [True, False, False, False, False]


def test_a_handler_may_be_async_or_a_method() -> None:
    class Service:
        def run(self, a: int) -> None: ...

    async def coroutine(a: int) -> None: ...

    for handler in (coroutine, Service().run):
        assert by_name(handler, a=1) == {"a": 1}


@pytest.mark.parametrize("source", ["*args", "**kwargs", "a, /", "a: int, *rest: str"])
def test_parameters_without_a_name_of_their_own_are_refused(source: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def handler({source}): ...", namespace)  # noqa: S102 - the shapes are easier to read as source
    with pytest.raises(ConfigurationError, match=r"no \*args, no \*\*kwargs, no positional-only"):
        Signature("t", namespace["handler"])


def test_an_annotation_that_cannot_be_resolved_is_refused_with_its_name() -> None:
    def handler(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - the point of the test

    with pytest.raises(ConfigurationError, match=r"task 't' .*'Missing' is not defined.*module level"):
        Signature("t", handler)


def test_a_type_that_json_cannot_carry_is_refused_when_the_task_is_made() -> None:
    def handler(a: list[int] | set[str]) -> None: ...

    with pytest.raises(
        ConfigurationError, match=r"task 't': parameter 'a' has the type list\[int\] \| set\[str\], which"
    ):
        Signature("t", handler)


def test_an_argument_that_json_cannot_carry_is_refused_at_enqueue() -> None:
    def handler(a: Any) -> None: ...

    with pytest.raises(InvalidPayload, match="cannot be encoded as JSON"):
        Signature("t", handler).encode((nothing,), {}, **LIMITS)


def test_a_parameter_is_the_context_by_its_type_not_by_its_name() -> None:
    def handler(ctx: int) -> None: ...

    assert Signature("t", handler).context_name is None
    assert by_name(handler, 5) == {"ctx": 5}


def test_a_task_without_parentheses_or_with_a_number_for_a_policy_raises_how_to_write_it() -> None:
    hf = Holdfast("postgresql://nowhere/none")

    async def handler() -> None: ...

    with pytest.raises(ConfigurationError, match=r"write @hf\.task\(\) with parentheses"):
        hf.task(handler)
    with pytest.raises(ConfigurationError, match="retry must be a policy such as"):
        hf.task(retry=3)
    with pytest.raises(UsageError, match="delay must be a number of seconds from now"):
        hf.task()(handler).using(delay="1m")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"run_at": "tomorrow"}, "run_at must be a datetime with a time zone, got 'tomorrow'"),
        ({"run_at": 5}, "run_at must be a datetime with a time zone, got 5"),
        ({"tenant": 7}, "a tenant must be a string, got 7"),
        ({"queue": b"mail"}, "a queue must be a string, got b'mail'"),
        ({"max_attempts": "3"}, "max_attempts must be from 1 to 32000, got '3'"),
        ({"batch": 7}, "batch must be a batch made by hf.batch\\(\\), or its id, got 7"),
    ],
)
def test_an_option_of_the_wrong_type_is_named_with_its_value(options: dict[str, Any], expected: str) -> None:
    @Holdfast("postgresql://nowhere/none").task()
    async def handler() -> None: ...

    with pytest.raises(UsageError, match=expected):
        handler.using(**options).enqueue()
