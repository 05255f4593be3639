"""Registration of commands.

A command that takes `db` or `hf` gets the options --dsn and --schema, and an open Database or application. The callback
of a group, which lists its noun, runs only without a subcommand. --help shows no type for flags, which take no value.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast.cli.database import Database, application
from holdfast.cli.options import Dsn, Schema

_OPENERS: dict[str, Callable[[str | None, str | None], Any]] = {"db": Database, "hf": application}
_OPTIONS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    for name, kind in (("dsn", Dsn), ("schema", Schema))
]


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


class Commands(typer.Typer):
    """A registry of commands."""

    def __init__(self, *, cls: type[TyperGroup] = Group, **options: Any) -> None:
        super().__init__(cls=cls, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Register a command."""
        register = super().command(name, **{"cls": Command, **options})

        def decorate(act: Callable[..., None]) -> Callable[..., None]:
            register(_with_connection(act))
            return act

        return decorate

    def listing(self, **options: Any) -> Callable[[Any], Any]:
        """Register what a group does without a subcommand."""
        register = super().callback(**options)

        def decorate(act: Callable[..., None]) -> Callable[..., None]:
            register(_without_subcommand(_with_connection(act)))
            return act

        return decorate


def _with_connection(act: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `db` or `hf` of a command by --dsn and --schema."""
    # The application is imported when the command runs, so its name may not be defined yet.
    parameters = dict(inspect.signature(act, eval_str=True, locals={"Holdfast": Any}).parameters)
    given = [name for name in _OPENERS if parameters.pop(name, None) is not None]
    if not given:
        return act

    @functools.wraps(act)
    def run(*, dsn: str | None, schema: str | None, **options: Any) -> None:
        with _OPENERS[given[0]](dsn, schema) as opened:
            act(opened, **options)

    keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters.values()]
    return _signed(run, [*keyword_only, *_OPTIONS])


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
