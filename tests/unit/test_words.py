"""docs/glossary.md is the law: words of the old dialect do not come back."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.conftest import ROOT

BANNED = re.compile(r"\b(told|somebody|whoever|[Aa]nswers (whether|with|how|the|it|for|if|in))\b", re.IGNORECASE)
ALLOWED = {"tests/unit/test_words.py", "docs/glossary.md", "docs/requirements.md"}


def texts() -> list[str]:
    """Return the text files of the project."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("NOT A GIT CHECKOUT, so the list of files is not known")
    return [name for name in listed.stdout.split() if name.endswith((".py", ".sql", ".md", ".toml"))]


def test_no_banned_word_is_used() -> None:
    found = []
    for name in texts():
        file = ROOT / name
        if name in ALLOWED or not file.is_file():
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if match := BANNED.search(line):
                found.append(f"{name}:{number}: {match[0]}")
    assert found == []


@pytest.mark.parametrize("text", ["is told to stop", "Somebody waits", "whoever asks", "Answers whether it was paused"])
def test_the_check_finds_what_is_banned(text: str) -> None:
    assert BANNED.search(text)
