"""Draws docs/pictures/top.svg: `holdfast top` of a shop at work, as a terminal shows it."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from screenshots import FOLDER, database  # noqa: E402 - the folder of tools is found from here on

from tests.support.program import COMMAND, environment  # noqa: E402
from tests.support.storefront import opened  # noqa: E402

COLUMNS = 96


def main() -> None:
    """Write the picture."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # jobs fail on purpose
    with tempfile.TemporaryDirectory(prefix="hf-terminal-") as folder, database(Path(folder)) as dsn, opened(dsn):
        env = environment(dsn, COLUMNS=str(COLUMNS), FORCE_COLOR="1")
        shown = subprocess.run([*COMMAND, "top", "--once"], env=env, capture_output=True, text=True, check=True).stdout
    (FOLDER / "top.svg").write_text(drawn(shown), encoding="utf-8")


def drawn(shown: str) -> str:
    """Return a terminal with the text, without the fonts that it would load from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ holdfast top\n{shown.rstrip()}"))
    svg = console.export_svg(title="holdfast top", theme=DIMMED_MONOKAI, unique_id="top")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S).replace("Fira Code,", "ui-monospace, Menlo, Consolas,")


if __name__ == "__main__":
    main()
