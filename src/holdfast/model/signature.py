"""A handler's signature as a payload: arguments to JSON at enqueue, JSON to arguments at run.

Positional and keyword arguments become one JSON object by parameter name. Enqueue decodes it with the worker's decoder,
so a payload that passes fits the handler, unless that has changed since.
"""

from __future__ import annotations

import gc
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import ConfigurationError, InvalidPayload
from holdfast.model import codec, payload
from holdfast.model.context import Context
from holdfast.model.job import Job
from holdfast.model.resource import Resource

_astuple = msgspec.structs.astuple
Call = tuple[tuple[Any, ...], dict[str, Any]]
_LARGEST_HELD = 65_536  # bytes
_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """The parameters of one handler, and the encoding of its arguments."""

    def __init__(self, name: str, handler: Callable[..., Any]) -> None:
        self.name = name
        hints = hints_of(name, handler)
        parameters = list(inspect.signature(handler).parameters.values())
        self.context_name = next((p.name for p in parameters if hints.get(p.name) is Context), None)
        self.resources = {p.name: p.default for p in parameters if isinstance(p.default, Resource)}
        arguments = [p for p in parameters if p.name != self.context_name and p.name not in self.resources]
        _refuse_variadic(name, arguments)
        self.context_first = bool(
            self.context_name and parameters[0].name == self.context_name and parameters[0].kind in _PLAIN[:1]
        )
        self._shape = inspect.Signature(arguments)
        self.names = tuple(p.name for p in arguments)
        self.kinds = {p.name: hints.get(p.name, Any) for p in arguments}
        self._defaults = {p.name: p.default for p in arguments if p.default is not p.empty}
        self._positional = not self._defaults and all(p.kind is _PLAIN[0] for p in arguments)
        checked = {
            each: codec.check_type(kind, f"task {name!r}: parameter {each!r}") for each, kind in self.kinds.items()
        }
        self._codecs = {each: found for each, found in checked.items() if found is not None}
        self.result = ResultType(name, hints.get("return", Any))
        self._decoder = _decoder(name, arguments, {**hints, **dict.fromkeys(self._codecs, msgspec.Raw)})

    @property
    def _what(self) -> str:
        return f"the payload of task {self.name!r}"

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any], max_size: int, max_depth: int) -> bytes:
        """Return the payload of one call, checked against the handler and the size limits."""
        bound = self.bind(args, kwargs)
        if self._codecs:
            self._write(bound)
        data = payload.encode(bound, self._what)
        # Cheap tests that may give false alarms; check_limits decides.
        if len(data) > max_size or b"\\u0000" in data or data.count(b"{") + data.count(b"[") > max_depth:
            payload.check_limits(data, self._what, max_size, max_depth)
        self._decode(data)
        return data

    def check_json(self, data: bytes, max_size: int, max_depth: int) -> payload.Encoded:
        """Return a payload that came as JSON, checked like one that encode() makes, and decoded once."""
        payload.check_limits(data, self._what, max_size, max_depth)
        if len(data) * payload.LONGEST_NUMBER <= max_size:  # else check_limits has checked its numbers
            payload.stored_size(data, self._what, max_size)
        # Line ends and tabs occur only between values; they would break a COPY line.
        checked = payload.Encoded(data.translate(None, b"\r\n\t"))
        try:
            if len(data) > _LARGEST_HELD:
                self._try_large(checked)
            else:
                checked.held, checked.reader = self._decode(checked), self
        except InvalidPayload:
            self._explain(data)
            raise
        return checked

    def _try_large(self, data: bytes) -> None:
        """Decode a large payload to check it. The garbage collector is off, because its scans of the new objects would
        take two thirds of the time."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            self._decode(data)
        finally:
            if was_enabled:
                gc.enable()

    def _explain(self, data: bytes) -> None:
        """Raise bind()'s error if arguments are missing or unknown, as for callers in Python."""
        try:
            arguments = msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError):
            return
        if isinstance(arguments, dict):
            self.bind((), arguments)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by parameter name, or raise InvalidPayload."""
        if not kwargs and self._positional and len(args) == len(self.names):
            return dict(zip(self.names, args))  # noqa: B905 - equal lengths; strict would cost a tenth of an enqueue
        if injected := {self.context_name, *self.resources} & set(kwargs):
            raise InvalidPayload(f"{injected.pop()!r} is given to task {self.name!r} by the worker, not by enqueue")
        try:
            return dict(self._shape.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise InvalidPayload(f"task {self.name!r} takes {self._shape}: {error}") from None

    def bind_some(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return some of the arguments by parameter name, for searches."""
        try:
            return dict(self._shape.bind_partial(*args, **kwargs).arguments)
        except TypeError as error:
            raise InvalidPayload(f"task {self.name!r} takes {self._shape}: {error}") from None

    def call(self, job: Job) -> Call:
        """Return the arguments that a job is run with."""
        return self.decode(job.payload)

    def decode(self, data: str | bytes) -> Call:
        """Return the arguments of a payload."""
        decoded = self._decode(data)
        if self._positional:
            return _astuple(decoded), {}
        values = msgspec.structs.asdict(decoded)
        return (), {k: v for k, v in values.items() if v is not msgspec.UNSET}

    def arguments(self, data: str | bytes) -> dict[str, Any]:
        """Return the arguments by name, with defaults filled in."""
        values = msgspec.structs.asdict(self._decode(data))
        return {name: self._defaults[name] if value is msgspec.UNSET else value for name, value in values.items()}

    def _write(self, bound: dict[str, Any]) -> None:
        for name, its_codec in self._codecs.items():
            if name in bound:
                try:
                    bound[name] = msgspec.Raw(its_codec.encode_argument(bound[name]))
                except Exception as error:  # a serializer may be the application's own code
                    raise InvalidPayload(
                        f"task {self.name!r} takes {self._shape}: parameter {name!r}: {error}"
                    ) from error

    def _read(self, held: msgspec.Struct) -> None:
        for name, its_codec in self._codecs.items():
            if (data := getattr(held, name)) is not msgspec.UNSET:
                try:
                    setattr(held, name, its_codec.decode(data))
                except ValueError as error:
                    raise msgspec.ValidationError(f"parameter {name!r}: {error}") from None

    def _decode(self, data: str | bytes) -> msgspec.Struct:
        if isinstance(data, payload.Encoded) and data.reader is self:
            cached: msgspec.Struct = data.held
            return cached
        try:
            held: msgspec.Struct = self._decoder.decode(data)
            if self._codecs:
                self._read(held)
            return held
        except msgspec.ValidationError as error:
            raise InvalidPayload(
                f"task {self.name!r} takes {self._shape}, but the payload does not fit: {error}"
            ) from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidPayload(f"the payload of task {self.name!r} cannot be read: {error}") from None


class ResultType:
    """The type of a task's results: the handler's return annotation."""

    def __init__(self, task: str, annotation: Any) -> None:
        self._task = task
        self._annotation = annotation
        self._codec = codec.check_type(annotation, f"task {task!r}: the result")

    def read(self, result: Any) -> Any:
        """Return a stored result as this type."""
        if result is None or self._annotation in (Any, None, type(None)):
            return result
        try:
            if self._codec is not None:
                return self._codec.decode(msgspec.json.encode(result))
            return msgspec.convert(result, self._annotation, strict=False, dec_hook=codec.dec_hook)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise InvalidPayload(
                f"the result of task {self._task!r} is not the {self._annotation!r} it is annotated to return: {error}"
            ) from None

    def write(self, result: Any, what: str) -> bytes:
        """Return a result as JSON; for a Pydantic type, by that type."""
        if self._codec is None or result is None:
            return payload.encode(result, what)
        try:
            return self._codec.encode(result)
        except Exception as error:  # a serializer may be the application's own code
            raise InvalidPayload(f"{what} cannot be encoded as JSON: {error}") from error


def hints_of(name: str, handler: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a handler."""
    try:
        return typing.get_type_hints(handler, include_extras=True)
    except NameError as error:
        raise ConfigurationError(
            f"task {name!r} has an annotation that cannot be resolved: {error}; types used in a task's signature "
            "must be importable at module level (not only under TYPE_CHECKING)"
        ) from None


def _refuse_variadic(name: str, parameters: Sequence[inspect.Parameter]) -> None:
    for each in parameters:
        if each.kind not in _PLAIN:
            raise ConfigurationError(
                f"task {name!r} has the parameter {str(each)!r}; a payload is a JSON object, so every parameter of a "
                "task needs a name of its own (no *args, no **kwargs, no positional-only)"
            )


def _decoder(name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Any:
    fields: list[Any] = []
    for each in parameters:
        kind = hints.get(each.name, Any)
        if each.default is each.empty:
            fields.append((each.name, kind))
        else:
            fields.append((each.name, kind | msgspec.UnsetType if kind is not Any else Any, msgspec.UNSET))
    try:
        shape = msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=True, gc=False)
        return msgspec.json.Decoder(shape, dec_hook=codec.dec_hook)
    except TypeError as error:
        raise ConfigurationError(
            f"task {name!r} has a parameter whose type cannot be encoded as JSON: {error}; {codec.USABLE}"
        ) from None
