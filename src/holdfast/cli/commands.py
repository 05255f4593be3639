"""Registration of commands.

A command that takes `hf` gets the options --dsn and --schema, and an open application. A parameter that is marked with
OptionsFrom(function) is made of that function's options. The callback of a group, which lists its noun, runs only
without a subcommand. --help shows no type for flags, which take no value.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast.cli.options import Dsn, OptionsFrom, Schema

if TYPE_CHECKING:
    from holdfast.client import Holdfast


class Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, including --help."""
        return _without_types_of_flags(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, including --help."""
        return _without_types_of_flags(super().get_params(ctx))


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name. The module of a command is imported when the command is looked up, because all of them take
    0.2 s."""

    def __init__(self, places: Mapping[str, tuple[str, str | None]]) -> None:
        self._places = places
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        place, example = self._places[name]
        if name not in self._made:
            module, _, attribute = place.partition(":")
            found = getattr(importlib.import_module(f"holdfast.cli.{module}"), attribute)
            self[name] = typer.main.get_group(found) if example is None else _single(name, found, example)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        command.name = name
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError("the commands are fixed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _single(name: str, act: Callable[..., None], example: str) -> Any:
    alone = Commands(add_completion=False)
    alone.command(name, epilog=f"Example: {example}")(act)
    return typer.main.get_command(alone)


class Commands(typer.Typer):
    """A registry of commands."""

    def __init__(self, *, cls: type[TyperGroup] = Group, **options: Any) -> None:
        super().__init__(cls=cls, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Register a command."""
        register = super().command(name, **{"cls": Command, **options})

        def decorate(act: Callable[..., None]) -> Callable[..., None]:
            register(_with_options(act))
            return act

        return decorate

    def listing(self, **options: Any) -> Callable[[Any], Any]:
        """Register what a group does without a subcommand."""
        register = super().callback(**options)

        def decorate(act: Callable[..., None]) -> Callable[..., None]:
            register(_without_subcommand(_with_options(act)))
            return act

        return decorate


def _with_options(act: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the parameters of a function that are made of options by those options."""
    parameters = _parameters(act)
    makers = {name: _with_options(make) for name, each in parameters.items() if (make := _maker(each)) is not None}
    options = {name: _parameters(make) for name, make in makers.items()}
    if not makers:
        return act

    @functools.wraps(act)
    def run(**given: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for name, make in makers.items():
                made = make(**{option: given.pop(option) for option in options[name]})
                given[name] = stack.enter_context(made) if make is application else made
            return act(**given)

    offered = [option for name, each in parameters.items() for option in options.get(name, {name: each}).values()]
    last = [each for each in offered if each.name in ("dsn", "schema")]  # they are the same in all commands
    rest = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in offered if each not in last]
    return _signed(run, [*rest, *last])


def _parameters(act: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    # The application is imported when the command runs, so its name may not be defined yet.
    return inspect.signature(act, eval_str=True, locals={"Holdfast": Any}).parameters


def _maker(parameter: inspect.Parameter) -> Callable[..., Any] | None:
    """Return the function that makes a parameter of its own options, or None for an option."""
    if parameter.name == "hf":
        return application
    return next((each.make for each in get_args(parameter.annotation) if isinstance(each, OptionsFrom)), None)


def application(*, dsn: Dsn = None, schema: Schema = None) -> Holdfast:
    """Return an application without tasks, for the operations of its nouns."""
    from holdfast.client import Holdfast

    return Holdfast(dsn, schema=schema)


def _without_subcommand(act: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(act)
    def run(*, ctx: typer.Context, **options: Any) -> None:
        if ctx.invoked_subcommand is None:
            act(**options)

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return _signed(run, [*inspect.signature(act, eval_str=True).parameters.values(), context])


def _signed(run: Any, parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Give a wrapper the parameters that Typer is to offer."""
    run.__signature__ = inspect.Signature(parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    signed: Callable[..., None] = run
    return signed


def _without_types_of_flags(parameters: Any) -> Any:
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""  # Typer would show <bool>
    return parameters
