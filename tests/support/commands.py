"""The commands of `holdfast`, with their options, to check those that documents and manifests name."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import typer

from holdfast.cli.app import app
from holdfast.settings import Settings

AFTER = ("&&", "||", "|", ";", "&", ">", ">>", "<")  # what ends a command in a shell
SETTINGS = {f"HOLDFAST_{each.name.upper()}": each for each in fields(Settings)}


@functools.cache
def root() -> Any:
    """Return the root command; making it takes 20 ms."""
    return typer.main.get_command(app)


def problem(arguments: Sequence[str]) -> str | None:
    """Return what is wrong with the arguments of `holdfast`, or None. N stands for a number."""
    command = root()
    rest = list(arguments)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    if rest and not rest[0].startswith("-") and getattr(command, "commands", None):
        return f"no command {rest[0]!r}"
    context = typer.Context(command, info_name="holdfast", resilient_parsing=True)
    values = ["1" if word == "N" else word for word in rest]
    try:
        command.make_context("holdfast", values, parent=context)
    except Exception as error:
        named = not rest and type(error).__name__ == "MissingParameter"  # prose names a command without its arguments
        return None if named or isinstance(error, typer.Exit) else f"{type(error).__name__}: {error}"
    return None


def named_in(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `holdfast ...` in the code of a document."""
    blocks = [each.replace("\\\n", " ") for each in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.S)]
    lines = [line.strip().removeprefix("$ ").removeprefix("sudo ") for block in blocks for line in block.splitlines()]
    spans = re.findall(r"`(holdfast [^`]+)`", text)
    for line in [*lines, *spans]:
        words = shlex.split(line, comments=True)
        program = next((n for n, word in enumerate(words) if word.rpartition("/")[2] == "holdfast"), None)
        if program is not None and words[0].rpartition("/")[2] in ("holdfast", "runuser"):
            rest = words[program + 1 :]
            yield rest[: next((n for n, word in enumerate(rest) if word in AFTER), len(rest))]
