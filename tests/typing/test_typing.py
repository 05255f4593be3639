"""The types of the public API, as a user's type checker sees them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

USAGE = Path(__file__).parent / "usage.py"
ROOT = USAGE.parent.parent.parent
Found = dict[int, set[str]]


def expected(checker: int) -> Found:
    """Return the errors that usage.py marks: mypy's codes are the first part, pyright's rules the second."""
    marks: Found = {}
    for number, line in enumerate(USAGE.read_text().splitlines(), 1):
        if ")  # error: " in line:
            marks[number] = set(line.partition("# error: ")[2].split(" / ")[checker].split(", "))
    assert len(marks) > 10
    return marks


def run(*command: str) -> str:
    env = os.environ | {"PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env).stdout


def test_mypy_refuses_wrong_calls_and_no_others() -> None:
    output = run(sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(USAGE))
    found: Found = {}
    for line, code in re.findall(r"usage\.py:(\d+): error: .*\[([\w-]+)\]", output):
        found.setdefault(int(line), set()).add(code)
    assert found == expected(0), output


def test_pyright_refuses_wrong_calls_and_no_others() -> None:
    output = run(sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(USAGE))
    found: Found = {}
    for each in json.loads(output)["generalDiagnostics"]:
        if each["severity"] == "error":
            found.setdefault(each["range"]["start"]["line"] + 1, set()).add(each.get("rule", each["message"]))
    assert found == expected(1), output
