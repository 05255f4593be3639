"""How commands show their parameters in --help: a flag takes no value, so it shows no type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, with --help, which every command has."""
        return _without_types_of_flags(super().get_params(ctx))


class Group(TyperGroup):
    """Commands below one name."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, with --help, which every group has."""
        return _without_types_of_flags(super().get_params(ctx))


class Commands(typer.Typer):
    """Where commands are registered."""

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
