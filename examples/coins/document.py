"""The statements that came with the design, for the visible run and the tests."""

from __future__ import annotations

from pathlib import Path


def document_sql() -> dict[str, str]:
    """Return the document's queries, word for word, by their first line."""
    blocks = Path(__file__).with_name("document.sql").read_text().strip().split("\n\n")
    return {block.partition("\n")[0].removeprefix("-- "): block for block in blocks}
