"""Writes docs/reference/{settings,sql,cli,python}.md from the code; with --check, compares only."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import typer
from python_page import python_page

from holdfast import settings
from holdfast.cli.app import app

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference"
SQL = ROOT / "src" / "holdfast" / "sql"
MADE = "Made from the code by `make reference`; change it there.\n\n"


def settings_page() -> str:
    """Return the page of settings."""
    intro = "In code as `Holdfast(lease=300)`, in the environment as `HOLDFAST_LEASE=300`. Code takes precedence.\n\n"
    return "# Settings\n\n" + MADE + intro + settings.table()


def sql_page() -> str:
    """Return the page of SQL functions and views: their headers and parameters."""
    parts = [
        "# SQL functions and views\n\n" + MADE + "All in the schema `holdfast`; see [the guide](../guides/sql.md).\n"
    ]
    for file in sorted((SQL / "functions").glob("*/*.sql"), key=lambda file: file.stem):
        parts.append(f"## {file.stem}\n\n{_header(file)}\n\n```sql\n{_declaration(file)}\n```\n")
    parts.append("# Views\n")
    for file in sorted((SQL / "views").glob("*.sql")):
        parts.append(f"## {file.stem}\n\n{_header(file)}\n")
    return "\n".join(parts)


def cli_page() -> str:
    """Return the page of commands with their help."""
    return "# The command line\n\n" + MADE + "\n".join(_commands(typer.main.get_command(app), "holdfast"))


def _commands(command: typer.core.TyperGroup, path: str) -> Iterator[str]:
    context = typer.Context(command, info_name=path, terminal_width=100)
    usage = " ".join(command.collect_usage_pieces(context))
    options = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    lines = [f"## {path}\n\n{_plain(command.help or '')}\n\n`{path} {usage}`\n"]
    if options:
        lines.append("| option | meaning |\n|---|---|")
        lines += [f"| `{name}` | {_plain(text).replace('|', '/')} |" for name, text in options]
    yield "\n".join(lines) + "\n"
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(child, f"{path} {name}")


def _plain(text: str) -> str:
    return re.sub(r"\[/?[a-z ]+\]|\x08\n?", "", text).strip()


def _header(file: Path) -> str:
    lines = []
    for line in file.read_text().splitlines():
        if not line.startswith("--"):
            break
        lines.append(line[2:].strip())
    if not lines:
        raise SystemExit(f"{file.relative_to(ROOT)} needs a comment at the top that describes it")
    return re.sub(r"\n(Parameters|Returns|Locks|Wakes): ", r"\n\n*\1:* ", "\n".join(lines))


def _declaration(file: Path) -> str:
    found = re.search(r"create or replace (function.*?)\s+language", file.read_text(), re.S)
    return found[1].strip() if found else ""


PAGES = {"settings.md": settings_page, "sql.md": sql_page, "cli.md": cli_page, "python.md": lambda: python_page(MADE)}


def main() -> int:
    """Write or check the pages. Return 0 if they are up to date."""
    stale = [
        name for name, make in PAGES.items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != make()
    ]
    if "--check" not in sys.argv:
        for name in stale:
            (FOLDER / name).write_text(PAGES[name]())
        print(f"wrote {', '.join(stale) or 'nothing: all pages are up to date'}")
        return 0
    if stale:
        print(f"docs/reference/{stale[0]} does not match the code; run `make reference`")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
