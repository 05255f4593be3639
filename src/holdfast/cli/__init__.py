"""The command line. Commands import heavy modules when they run, so that help and completion are fast."""

from __future__ import annotations

from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> None:
    """Run the `holdfast` program, by default with the arguments of the process."""
    code: object = 0
    try:
        from holdfast.cli.app import app

        app(args, prog_name="holdfast")
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 130
    from holdfast.cli.exit import exit_process

    exit_process(code if isinstance(code, int) else int(code is not None))
