"""The types of the public API, as a user's type checker sees them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

USAGE = Path(__file__).parent / "usage.py"


def test_wrong_arguments_are_type_errors_and_right_ones_are_not() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(USAGE)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=USAGE.parent.parent.parent).stdout
    found: dict[int, set[str]] = {}
    for line, code in re.findall(r"usage\.py:(\d+): error: .*\[([\w-]+)\]", told):
        found.setdefault(int(line), set()).add(code)
    expected = {
        number: set(line.partition("# error: ")[2].split(", "))
        for number, line in enumerate(USAGE.read_text().splitlines(), 1)
        if ")  # error: " in line
    }
    assert found == expected, told
