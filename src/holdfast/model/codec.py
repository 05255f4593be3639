"""The types of arguments and results, and their encoding as JSON.

msgspec reads and writes plain types, dataclasses, attrs classes and structs. Pydantic types are recognized by their
protocol, so Pydantic need not be installed; its TypeAdapter validates and serializes them. A type that neither supports
is refused when the task is registered, not when its first job is enqueued.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect

from holdfast.errors import ConfigurationError

_PLAIN = (Any, str, int, float, bool, bytes, None, type(None), list, dict, typing.Never, typing.NoReturn)
_JSON: tuple[object, ...] = (
    None,
    True,
    0,
    0.5,
    "",
    [],
    {},
)  # values that satisfy a type such as `object` or Sized without decoding
_DATA = (dict, list, str, int, float, type(None))
_OLDEST = (2, 11)  # of Pydantic
_SHOWN = 3  # validation errors that a message quotes
USABLE = (
    "use str, int, float, bool, None, list, dict, datetime, UUID, Enum, dataclasses, TypedDict, msgspec.Struct, attrs "
    "classes or Pydantic models"
)


class Codec:
    """Encodes values of an annotation that mentions Pydantic types, with the annotation's TypeAdapter."""

    def __init__(self, kind: Any) -> None:
        from pydantic import VERSION, BaseModel, TypeAdapter

        if tuple(map(int, VERSION.split(".")[:2])) < _OLDEST:
            raise TypeError(f"Pydantic {VERSION} cannot read fields by name; install 2.11 or later")
        if BaseModel in _mentioned(kind):
            raise TypeError("BaseModel has no fields of its own; name the model")
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
        if (obstacle := _secret(self._adapter.json_schema(by_alias=False))) is not None:
            raise TypeError(obstacle)

    def encode_argument(self, value: Any) -> bytes:
        """Return the JSON of an object or of plain data.

        An object is validated, because Pydantic would serialize any by its attributes. Plain data that fails is passed
        on to decode(): in JSON, a strict model accepts the text of a date.
        """
        try:
            checked = self._adapter.validate_python(value, by_alias=True, by_name=True)
        except ValueError as error:
            if isinstance(value, _DATA):
                return msgspec.json.encode(value, enc_hook=enc_hook)
            raise ValueError(_reasons(error)) from None
        return self.encode(checked)

    def encode(self, value: Any) -> bytes:
        """Return the JSON, by field names."""
        data: bytes = self._adapter.dump_json(value, by_alias=False, round_trip=True, warnings=False)
        return data

    def decode(self, data: bytes | memoryview) -> Any:
        """Return the validated value, by names or aliases, or raise a ValueError that quotes no input."""
        try:
            return self._adapter.validate_json(bytes(data), by_alias=True, by_name=True)
        except ValueError as error:
            raise ValueError(_reasons(error)) from None


_by_class: dict[type[Any], Codec] = {}


def codec_of(kind: Any) -> Codec | None:
    """Return the codec of an annotation that mentions a Pydantic type; None for other annotations."""
    return Codec(kind) if any(map(_is_pydantic, _mentioned(kind))) else None


def check_type(kind: Any, what: str) -> Codec | None:
    """Return the codec of an annotation, if it needs one; raise ConfigurationError if it has no JSON form."""
    if kind in _PLAIN:
        return None
    try:
        codec = codec_of(kind)
        obstacle = _obstacle(kind) if codec is None else None
    except Exception as error:  # each library has its own exception for a type without a schema
        obstacle = str(error).partition("\n")[0] or type(error).__name__
    if obstacle is not None:
        raise ConfigurationError(
            f"{what} has the type {type_name(kind)}, which cannot be encoded as JSON: {obstacle}; {USABLE}"
        )
    return codec


def type_name(kind: Any) -> str:
    """Return a type as it is written: Order, list[Order]."""
    return kind.__qualname__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)


def field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields that every value of a type has."""
    if isinstance(fields := getattr(kind, "__pydantic_fields__", None), dict):
        return tuple(fields)
    info = msgspec.inspect.type_info(kind)
    if isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType | msgspec.inspect.TypedDictType):
        return tuple(each.name for each in info.fields if each.required or not typing.is_typeddict(kind))
    return ()


def enc_hook(value: Any) -> Any:
    """Encode a Pydantic model inside a value that msgspec encodes."""
    if not _is_pydantic(type(value)):
        raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")
    return msgspec.Raw(_codec_of_class(type(value)).encode(value))


def dec_hook(kind: type, value: Any) -> Any:
    """Decode a Pydantic model inside a dataclass, an attrs class or a struct."""
    if _is_pydantic(kind):
        return _codec_of_class(kind).decode(msgspec.json.encode(value))
    return value  # msgspec checks that it is an instance


def _codec_of_class(kind: type[Any]) -> Codec:
    if (codec := _by_class.get(kind)) is None:
        codec = _by_class[kind] = Codec(kind)
    return codec


def _mentioned(kind: Any) -> Iterator[Any]:
    """Yield an annotation, its arguments and its metadata, recursively."""
    yield kind
    for part in (*typing.get_args(kind), *getattr(kind, "__metadata__", ())):
        yield from _mentioned(part)


def _is_pydantic(part: Any) -> bool:
    """Return whether this is a Pydantic type or dataclass, or a constraint such as Field(gt=0)."""
    if isinstance(part, type):
        return hasattr(part, "__get_pydantic_core_schema__") or "__pydantic_validator__" in vars(part)
    return type(part).__module__.partition(".")[0] in ("pydantic", "annotated_types")


def _secret(schema: Any) -> str | None:
    """Return why a schema would lose values (Pydantic writes secrets as asterisks), or None."""
    if isinstance(schema, dict):
        if schema.get("writeOnly") is True:
            return "it has a secret, which is written as '**********'; pass a reference to it instead"
        schema = list(schema.values())
    return next(filter(None, map(_secret, schema)), None) if isinstance(schema, list) else None


def _obstacle(kind: Any) -> str | None:
    """Return why msgspec cannot encode a type, its parts or its fields, or None."""
    visited: set[int] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(kind)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting += node
        elif isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field) and id(node) not in visited:
            visited.add(id(node))
            if (reason := _reason(node)) is not None:
                return reason
            waiting += [getattr(node, name) for name in node.__struct_fields__ if name not in ("default", "cls")]
    return None


def _reason(node: Any) -> str | None:
    if isinstance(node, msgspec.inspect.CustomType):
        if _is_pydantic(node.cls):
            _codec_of_class(node.cls)
        elif not any(isinstance(value, node.cls) for value in _JSON):
            return f"there is no encoding for {type_name(node.cls)}"
    if isinstance(node, msgspec.inspect.DataclassType):
        if _is_pydantic(node.cls):
            return f"inside another class, the validators of {type_name(node.cls)} would not run; make it a model"
        hidden = [field.name for field in node.fields if field.name.startswith("_")]
        if hidden and hasattr(node.cls, "__attrs_attrs__"):
            return f"the attribute {hidden[0]!r} of {type_name(node.cls)} is private and would be lost"
    return None


def _reasons(error: ValueError) -> str:
    """Return the messages of a Pydantic ValidationError, without its input."""
    list_errors = getattr(error, "errors", None)
    if list_errors is None:
        return str(error)
    found = list_errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{each['msg']}{_place(each['loc'])}" for each in found[:_SHOWN]]
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(shown) + more


def _place(loc: tuple[Any, ...]) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return f" - at `${path}`" if path else ""
