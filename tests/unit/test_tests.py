"""What tests may not do: patch the clock or the random numbers, or use private attributes of Holdfast."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

TESTS = ROOT / "tests"
PATCHED = re.compile(r"setattr\([^)]*\b(monotonic|random)\b")
# Where private attributes are not used, but for these files.
OUTSIDE = ("sql", "store", "cli", "effects", "faults", "wakeups", "journeys")
PRIVATE = re.compile(r"_[a-z]")
# To be mended; no new ones.
MAY_REACH_IN = {"effects/test_webhooks_client.py"}
OF_OTHERS = {"_replace", "_asdict", "_fields", "_exit"}  # public in spite of their names: namedtuples and os


def files(folders: tuple[str, ...] = ("",)) -> Iterator[str]:
    for folder in folders:
        for file in sorted((TESTS / folder).rglob("*.py")):
            yield str(file.relative_to(TESTS))


def reaches(text: str) -> list[str]:
    """Return the private attributes that are read or set on anything but self and cls."""
    if not re.search(r"\._[a-z]", text):
        return []  # most files need no parsing
    return [
        f"line {node.lineno}: {node.attr}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and PRIVATE.match(node.attr) and node.attr not in OF_OTHERS
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def read(name: str) -> str:
    return Path(TESTS, name).read_text(encoding="utf-8")


def test_no_test_patches_the_clock_or_random_numbers() -> None:
    assert {name for name in files() if PATCHED.search(read(name))} == {"unit/test_tests.py"}


def test_no_test_outside_of_the_worker_reaches_into_private_attributes() -> None:
    found = {name: reaches(read(name)) for name in files(OUTSIDE)}
    assert {name: where for name, where in found.items() if where and name not in MAY_REACH_IN} == {}


def test_exceptions_that_are_not_needed_any_more_are_removed() -> None:
    assert [name for name in sorted(MAY_REACH_IN) if not Path(TESTS, name).exists() or not reaches(read(name))] == []


@pytest.mark.parametrize(
    "text",
    [
        'monkeypatch.setattr("holdfast.web.service.time.monotonic", clock)',
        'monkeypatch.setattr(time, "monotonic", clock)',
        'monkeypatch.setattr("holdfast.worker.cursor.random", seeded)',
    ],
)
def test_the_check_finds_what_is_patched(text: str) -> None:
    assert PATCHED.search(text)


def test_the_check_finds_private_attributes_and_nothing_else() -> None:
    assert reaches("worker.claimer._wait = 1\nself._mine\njob._replace(id=1)\n__name__") == ["line 1: _wait"]
