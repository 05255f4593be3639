"""Objects as arguments and results: Pydantic models, attrs classes, dataclasses and structs, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime
import math
import subprocess
import sys
import uuid
from collections.abc import Callable, Hashable, Sized
from decimal import Decimal
from typing import Annotated, Any, NoReturn

import attrs
import msgspec
import pydantic
import pytest
from pydantic import BaseModel

from holdfast import ConfigurationError, Context, Delivery, Holdfast, InvalidPayload
from holdfast.model.outbox import DeliverySignature
from holdfast.model.signature import Signature
from tests.support.workers import APPS

sys.path.append(str(APPS))
import typed

LIMITS = {"max_size": 100_000, "max_depth": 50}
LINE = typed.Line(sku="a", price=Decimal("1.10"), count=2)
ORDER = typed.Order(id=uuid.UUID(int=7), orderedAt=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), lines=[LINE])


class Socket:
    """Nothing says how to write it."""


@dataclasses.dataclass
class HasSocket:
    sockets: list[Socket]


class ModelWithSocket(BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    socket: Socket


class Login(BaseModel):
    password: pydantic.SecretStr


@attrs.define
class Private:
    _x: int = 1


@attrs.define
class SelfMade:
    x: int
    y: int = attrs.field(default=attrs.Factory(lambda self: self.x, takes_self=True))


@dataclasses.dataclass
class HasPercent:
    percent: typed.Percent


@dataclasses.dataclass
class Anything:
    value: Any


class Tree(BaseModel):
    name: str
    below: list[Tree] = []


def handler_of(kind: Any, returns: Any = None) -> Callable[..., None]:
    def handler(value: Any) -> None: ...

    handler.__annotations__ = {"value": kind, "return": returns}
    return handler


def carried(kind: Any, value: Any) -> Any:
    """Return a value after a round trip through JSON."""
    signature = Signature("t", handler_of(kind))
    return signature.decode(signature.encode((value,), {}, **LIMITS))[0][0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (typed.Order, ORDER),
        (typed.Order | None, ORDER),
        (typed.Order | None, None),
        (list[typed.Order], [ORDER, ORDER]),
        (dict[str, typed.Pet], {"a": typed.Cat(), "b": typed.Dog(name="Rex")}),
        (typed.Cat | typed.Dog, typed.Dog(name="Rex")),
        (typed.Percent, typed.Percent(7)),
        (Tree, Tree(name="a", below=[Tree(name="b")])),
        (pydantic.HttpUrl, pydantic.HttpUrl("https://example.org/a")),
        (typed.Point, typed.Point(1, 2)),
        (list[typed.Point] | None, [typed.Point(1)]),
        (typed.Address, typed.Address("Bonn", (LINE,))),
        (typed.Parcel, typed.Parcel(ORDER, typed.Address("Bonn"))),
    ],
)
def test_an_object_arrives_as_it_was_sent(kind: Any, value: Any) -> None:
    arrived = carried(kind, value)
    assert arrived == value and type(arrived) is type(value)


def test_a_default_stays_with_the_handler_when_the_argument_is_left_out() -> None:
    weak = typed.Cat(lives=1)

    def handler(a: int, order: typed.Order | None = None, *, cat: typed.Cat = weak) -> None: ...

    signature = Signature("t", handler)
    assert signature.decode(signature.encode((1,), {}, **LIMITS)) == ((), {"a": 1})
    assert signature.arguments(b'{"a": 1}') == {"a": 1, "order": None, "cat": weak}
    assert signature.decode(signature.encode((1, ORDER), {"cat": typed.Cat()}, **LIMITS))[1]["order"] == ORDER


def test_data_read_from_json_fits_a_strict_model_too() -> None:
    data = {"id": str(ORDER.id), "orderedAt": "2026-01-02T00:00:00Z", "lines": [LINE.model_dump(mode="json")]}
    assert carried(typed.Order, data) == ORDER
    assert carried(list[typed.Order], [data, ORDER]) == [ORDER, ORDER]


def test_the_payload_of_a_model_has_its_field_names_and_aliases_are_read_too() -> None:
    signature = Signature("t", handler_of(typed.Order))
    data = signature.encode((ORDER,), {}, **LIMITS)
    assert set(msgspec.json.decode(data)["value"]) == {"id", "at", "lines"}
    assert signature.decode(data.replace(b'"at"', b'"orderedAt"')) == ((ORDER,), {})


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (typed.Order, {"id": 1}, r"parameter 'value': UUID input should be .* at `\$\.id`; Field required - at `\$\."),
        (typed.Line, typed.Line.model_construct(sku="a", price=1, count=0), r"greater than 0 - at `\$\.count`"),
        (typed.Percent, {"value": 101}, r"less than or equal to 100 - at `\$\.value`"),
        (Annotated[int, pydantic.Field(gt=0)], 0, "greater than 0"),
        (typed.Point, {"x": -1}, "'x' must be >= 0"),
        (typed.Address, {"city": 1}, r"Expected `str`, got `int` - at `\$\.value\.city`"),
        (typed.Address, {"city": "a", "lines": [{}]}, r"Field required"),
        (typed.Cat | typed.Dog, {"kind": "cow"}, r"Input should be 'cat'"),
        (typed.Cat, Socket(), "parameter 'value': Input should be a valid dictionary or instance of Cat"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_at_enqueue_with_its_place(kind: Any, value: Any, expected: str) -> None:
    with pytest.raises(InvalidPayload, match=expected) as caught:
        carried(kind, value)
    assert "pydantic.dev" not in str(caught.value) and "input_value" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Socket, r"parameter 'value' has the type Socket, which cannot be encoded as JSON: there is no encoding for"),
        (list[Socket], r"parameter 'value' has the type list\[.*Socket\], which .* encoding for Socket"),
        (HasSocket, r"parameter 'value' has the type HasSocket, which .* encoding for Socket"),
        (Socket | int, r"parameter 'value' has the type .*Socket \| int"),
        (Callable[[], int], r"parameter 'value' has the type collections.abc.Callable"),
        (complex, "has the type complex"),
        (ModelWithSocket, r"has the type ModelWithSocket, .*IsInstanceSchema"),
        (list[BaseModel], "BaseModel has no fields of its own"),
        (Login, "has the type Login, .* it has a secret"),
        (typed.Cat | typed.Parcel, "Unable to generate pydantic-core schema"),
        (Private, "the attribute '_x' of Private is private"),
        (SelfMade, "takes_self"),
        (HasPercent, "the validators of Percent would not run"),
    ],
)
def test_a_type_that_cannot_be_carried_is_refused_when_the_task_is_made(kind: Any, expected: str) -> None:
    hf = Holdfast("postgresql://nowhere/none")
    with pytest.raises(ConfigurationError, match=f"task 't': .*{expected}"):
        hf.task(name="t")(handler_of(kind))
    assert not hf.registry.tasks


def test_a_result_that_cannot_be_carried_is_refused_when_the_task_is_made() -> None:
    with pytest.raises(ConfigurationError, match="task 't': the result has the type Socket"):
        Signature("t", handler_of(int, Socket))


@pytest.mark.parametrize("kind", [object, Hashable, Sized, Any, "int"])
def test_a_type_that_plain_json_satisfies_is_taken(kind: Any) -> None:
    assert carried(kind, 7 if kind is not Sized else [7]) in (7, [7])


@pytest.mark.parametrize("kind", [NoReturn, None, Any, list[typed.Point], typed.Order | None])
def test_a_handler_may_return_anything_that_json_carries(kind: Any) -> None:
    Signature("t", handler_of(int, kind))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (typed.Order, ORDER),
        (list[typed.Pet], [typed.Cat(), typed.Dog(name="Rex")]),
        (typed.Percent, typed.Percent(3)),
        (typed.Point, typed.Point(1, 2)),
        (dict[str, typed.Parcel], {"a": typed.Parcel(ORDER)}),
        (pydantic.HttpUrl, pydantic.HttpUrl("https://example.org/a")),
        (typed.Order | None, None),
    ],
)
def test_a_result_is_read_as_what_the_handler_returned(kind: Any, value: Any) -> None:
    signature = Signature("t", handler_of(int, kind))
    assert signature.result.read(msgspec.json.decode(signature.result.write(value, "the result"))) == value


def test_a_model_is_a_result_without_an_annotation_too() -> None:
    signature = Signature("t", lambda: None)
    data = signature.result.write([ORDER], "the result")
    assert msgspec.json.decode(data)[0]["lines"][0]["sku"] == "a"


@pytest.mark.parametrize("value", [Anything(math.nan), [Anything([math.inf])], msgspec.defstruct("S", ["a"])(math.nan)])
def test_a_number_that_json_has_not_is_found_inside_objects(value: Any) -> None:
    with pytest.raises(InvalidPayload, match=r"holds (nan|inf), which JSON cannot represent"):
        carried(Any, value)


def test_the_payload_of_a_channel_may_be_a_model() -> None:
    def send(delivery: Delivery[typed.Dog], ctx: Context) -> None: ...

    signature = DeliverySignature("dogs", send)
    assert signature.names == ("kind", "name")
    signature.check(b'{"name": "Rex"}')
    assert signature.arguments(b'{"key": "k", "body": {"name": "Rex"}}') == {"kind": "dog", "name": "Rex"}
    with pytest.raises(InvalidPayload, match=r"channel 'dogs' takes a payload of type Dog, .*Field required"):
        signature.check(b'{"nme": "Rex"}')


def test_neither_pydantic_nor_attrs_is_needed() -> None:
    code = (
        "import sys; sys.modules['pydantic'] = sys.modules['attrs'] = sys.modules['attr'] = None\n"
        "import holdfast, dataclasses\n"
        "@dataclasses.dataclass\n"
        "class A:\n    x: int\n"
        "hf = holdfast.Holdfast('postgresql://nowhere/none')\n"
        "@hf.task(name='t')\n"
        "def t(a: A, b: list[str]) -> A: ...\n"
        "print(t.signature.decode(t.encode((A(1), ['x']), {})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "((A(x=1), ['x']), {})\n", done.stderr


@pytest.mark.parametrize(("kind", "stored"), [(typed.Order, {"id": 1}), (typed.Point, {"x": "a"}), (int, "x")])
def test_a_result_of_another_shape_is_reported_as_such(kind: Any, stored: Any) -> None:
    with pytest.raises(InvalidPayload, match="the result of task 't' is not the"):
        Signature("t", handler_of(int, kind)).result.read(stored)
