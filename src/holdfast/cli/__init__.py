"""The command line. Commands import what is heavy when they run, so that help and completion are quick."""

from __future__ import annotations

from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> None:
    """The `holdfast` program; without arguments, with those it was started with."""
    code: object = 0
    try:
        from holdfast.cli.app import app

        app(args, prog_name="holdfast")
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 130
    from holdfast.cli.leave import leave

    leave(code if isinstance(code, int) else int(code is not None))
