"""Tasks whose arguments and results are objects: of Pydantic, attrs, dataclasses and msgspec."""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from decimal import Decimal
from typing import Annotated, Literal

import attrs
import msgspec
import pydantic
import pydantic.dataclasses

from holdfast import Holdfast

hf = Holdfast()


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal
    count: int = pydantic.Field(gt=0)


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    id: uuid.UUID
    at: datetime.datetime = pydantic.Field(alias="orderedAt", serialization_alias="ordered_on")
    lines: list[Line] = []


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


@pydantic.dataclasses.dataclass
class Percent:
    value: Annotated[int, pydantic.Field(le=100)]


@attrs.define
class Point:
    x: int = attrs.field(validator=attrs.validators.ge(0))
    y: int = attrs.field(converter=int, default=0)


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    city: str
    lines: tuple[Line, ...] = ()


class Parcel(msgspec.Struct):
    order: Order
    to: Address | None = None


@hf.task()
async def on_the_loop(order: Order, point: Point, to: Address, parcel: Parcel | None = None) -> Order:
    assert isinstance(order, Order) and isinstance(point, Point) and isinstance(to, Address)
    assert parcel is None or (isinstance(parcel, Parcel) and isinstance(parcel.order, Order))
    return order


@hf.task()
def in_a_thread(point: Point, to: Address) -> list[Point]:
    assert isinstance(point, Point) and isinstance(to, Address)
    return [point, Point(point.x + 1, point.y)]


@hf.task(runner="process")
def in_a_process(order: Order, to: Address, pets: list[Pet], percent: Percent | None = None) -> Address:
    assert isinstance(order, Order) and isinstance(pets[0], Cat) and isinstance(pets[1], Dog)
    assert percent is None or isinstance(percent, Percent)
    return dataclasses.replace(to, lines=tuple(order.lines))


@hf.task()
async def many(pets: dict[str, Pet]) -> dict[str, Parcel]:
    return {}
