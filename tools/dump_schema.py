"""Writes docs/reference/schema.sql, the migrated schema as PostgreSQL 18 dumps it; with --check, compares only.

The file shows a reviewer what a change does to the database, and lets CI detect unintended changes.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast import Holdfast
from holdfast.store.dev.embedded import EmbeddedPostgres

FILE = Path(__file__).parent.parent / "docs" / "reference" / "schema.sql"
HEAD = (
    "-- The schema as PostgreSQL 18 dumps it, without history's daily partitions and without functions: those are\n"
    "-- applied from src/holdfast/sql/functions whenever they change. Made by `make schema`.\n\n"
)


def dump() -> str:
    """Return the schema of a freshly migrated database, without parts that depend on the day or the machine."""
    with tempfile.TemporaryDirectory(prefix="hf") as folder, EmbeddedPostgres(Path(folder) / "pg") as server:
        Holdfast(server.dsn()).migrate()
        command = [server.bin / "pg_dump", "--schema-only", "--no-owner", "--schema=holdfast", server.dsn()]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    statements = [part.strip() for part in re.split(r"\n{3,}", _without_noise(text))]
    kept = [part for part in statements if part and not re.search(r"history_\d{8}|CREATE FUNCTION", part)]
    return HEAD + "\n\n\n".join(kept) + "\n"


def _without_noise(text: str) -> str:
    lines = (line for line in text.splitlines() if not re.match(r"--( Dumped|\s*$)|SET |SELECT pg_catalog|\\", line))
    return "\n".join(lines)


def main() -> int:
    """Write or check the file. Return 0 if it is up to date."""
    now = dump()
    if "--check" not in sys.argv:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(now)
        print(f"wrote {FILE.name}")
        return 0
    kept = FILE.read_text() if FILE.exists() else ""
    if kept == now:
        print("the schema file is up to date")
        return 0
    print("".join(difflib.unified_diff(kept.splitlines(True), now.splitlines(True), "kept", "migrated")))
    print("docs/reference/schema.sql does not match the migrated schema; run `make schema` and read the difference")
    return 1


if __name__ == "__main__":
    sys.exit(main())
