"""The jobs around a job: its family as a tree, and what it follows as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.step import Relatives

MOST = 12  # jobs drawn on each side
_WIDTH, _HEIGHT, _GAP, _SPACE = 110, 26, 60, 10


@dataclass(frozen=True, slots=True)
class Node:
    """A job in the graph."""

    id: str
    x: int
    y: int
    own: bool = False

    @property
    def name(self) -> str:
        return f"...{self.id[-8:]}"


@dataclass(frozen=True, slots=True)
class Graph:
    """Jobs, and the lines from each to those that follow it."""

    width: int
    height: int
    nodes: Sequence[Node]
    lines: Sequence[tuple[int, int, int, int]]


def tree(relatives: Relatives) -> Relatives | None:
    """Return the family of a job, or None if it is alone."""
    return relatives if relatives.parent or relatives.children else None


def graph(job_id: str, relatives: Relatives) -> Graph | None:
    """Return the jobs that this one follows, itself, and those that follow it; None if there are none."""
    before, after = relatives.after[:MOST], relatives.followers[:MOST]
    if not before and not after:
        return None
    height = max(len(before), len(after), 1) * (_HEIGHT + _SPACE)
    own = Node(job_id, (_WIDTH + _GAP) * bool(before), height // 2 - _HEIGHT // 2, own=True)
    left = _column(before, 0)
    right = _column(after, own.x + _WIDTH + _GAP)
    lines = [_line(each, own) for each in left] + [_line(own, each) for each in right]
    width = (right[0].x if right else own.x) + _WIDTH
    return Graph(width, height, [*left, own, *right], lines)


def _column(jobs: Sequence[str], x: int) -> list[Node]:
    return [Node(each, x, place * (_HEIGHT + _SPACE)) for place, each in enumerate(jobs)]


def _line(start: Node, end: Node) -> tuple[int, int, int, int]:
    return start.x + _WIDTH, start.y + _HEIGHT // 2, end.x, end.y + _HEIGHT // 2
