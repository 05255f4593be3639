"""Command classes whose --help shows no type for flags, which take no value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


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
        return super().command(name, **{"cls": Command, **options})


def _without_types_of_flags(parameters: Any) -> Any:
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""  # Typer would show <bool>
    return parameters
