"""docs/glossary.md is the law: words of the old dialect do not come back."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

BANNED = re.compile(r"\b(told|somebody|whoever|[Aa]nswers (whether|with|how|the|it|for|if|in))\b", re.IGNORECASE)
ALLOWED = {"tests/unit/test_words.py", "docs/glossary.md", "docs/requirements.md"}
GENERATED = {"build", "dist", "out", "node_modules"}


def texts() -> Iterator[str]:
    """Yield the names of the project's text files, without git: a source distribution has none."""
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [name for name in inner if not name.startswith((".", "__")) and name not in GENERATED]
        for name in files:
            if name.endswith((".py", ".sql", ".md", ".toml")):
                yield str(Path(folder, name).relative_to(ROOT))


def test_no_banned_word_is_used() -> None:
    found = []
    for name in texts():
        if name in ALLOWED:
            continue
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if match := BANNED.search(line):
                found.append(f"{name}:{number}: {match[0]}")
    assert found == []


@pytest.mark.parametrize("text", ["is told to stop", "Somebody waits", "whoever asks", "Answers whether it was paused"])
def test_the_check_finds_what_is_banned(text: str) -> None:
    assert BANNED.search(text)
