"""Ceilings for the size of what a reader must hold in the head. A test that fails prints what is above."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

MEDIAN_LINES = 6  # of a function
P95_LINES = 20  # of a function
ATTRIBUTES = 12  # of an instance
# A claimed job is one object with its row and its state: the hot path makes and reads one for each job.
CROWDED = {"src/holdfast/model/job.py Job"}
SKIPS = 20  # places where the formatter is switched off
FILE_LINES = 500

SOURCES = sorted((ROOT / "src").rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
SKIP = "# fmt: " + "skip"


def lengths() -> list[tuple[int, str]]:
    """Return the lines of each function, longest first."""
    return sorted(
        ((node.end_lineno or 0) - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )[::-1]


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that methods of a class store in `self`, also by unpacking and in `with` and `for`."""
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def crowded() -> Iterator[str]:
    """Name the classes with more attributes than allowed."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and len(names := attributes(node)) > ATTRIBUTES:
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {len(names)}"


def lines(path: Path) -> list[str]:
    """Return the lines of a file."""
    return path.read_text(encoding="utf-8").splitlines()


def test_functions_are_short() -> None:
    found = lengths()
    counts = [count for count, _ in found]
    longest = "\n".join(f"{count:4} {name}" for count, name in found[: len(found) // 20])
    assert statistics.median(counts) <= MEDIAN_LINES
    assert counts[len(counts) // 20] <= P95_LINES, longest


def test_no_instance_has_many_attributes() -> None:
    found = {re.sub(r":\d+", "", each).partition(":")[0] for each in crowded()}
    assert found == CROWDED


def test_the_formatter_is_rarely_switched_off() -> None:
    folders = ("src", "tests", "bench", "tools", "examples")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [f"{path.relative_to(ROOT)}: {count}" for path in files if (count := path.read_text().count(SKIP))]
    assert sum(int(each.rpartition(" ")[2]) for each in found) <= SKIPS, "\n".join(found)


def test_files_fit_in_the_head() -> None:
    found = [f"{path.relative_to(ROOT)}: {count}" for path in SOURCES if (count := len(lines(path))) > FILE_LINES]
    assert found == []


def test_an_attribute_is_found_wherever_it_is_set() -> None:
    (node,) = ast.parse("class A:\n def f(self):\n  self.a, (self.b, c) = x\n  with y as self.c: self.d += self.e").body
    assert isinstance(node, ast.ClassDef)
    assert attributes(node) == {"a", "b", "c", "d"}
