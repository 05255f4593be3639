"""Draws the diagrams of docs/pictures: boxes and arrows as SVG, in the theme of the reader's browser."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
LINE = 16  # pixels
STYLE = """
  text { font: 13px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1f2933; text-anchor: middle }
  .paper { fill: #ffffff } .box { fill: #eef3f9; stroke: #7b98b8 } .good { fill: #e3f4e8; stroke: #5d9c72 }
  .bad { fill: #fbe9e7; stroke: #c07a70 } .wait { fill: #fdf4dc; stroke: #bfa055 } .area { fill: none; stroke: #aab7c4;
  stroke-dasharray: 5 4 } .arrow { fill: none; stroke: #5b6b7b; stroke-width: 1.4 } .head { fill: #5b6b7b }
  .label { font-size: 12px; fill: #52606d } .title { font-weight: 600 } .name { font-size: 12px; fill: #52606d; text-anchor: start }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e8ee } .paper { fill: #1b212b } .box { fill: #25364b; stroke: #5f83ad } .good { fill: #1f3b2b; stroke: #5d9c72 }
    .bad { fill: #47272a; stroke: #c07a70 } .wait { fill: #40371f; stroke: #bfa055 } .area { stroke: #57636f }
    .arrow { stroke: #9aa8b6 } .head { fill: #9aa8b6 } .label, .name { fill: #b4bfca }
  }
"""  # noqa: E501 - one rule is one rule


@dataclass(frozen=True)
class Box:
    """A box around its center; the first line of the text is its title."""

    x: int
    y: int
    text: str
    kind: str = "box"
    width: int = 130

    @property
    def height(self) -> int:
        return LINE * len(self.text.splitlines()) + 16

    def edge(self, x: float, y: float) -> tuple[float, float]:
        """Return where a line from the center to a point leaves the box."""
        dx, dy = x - self.x, y - self.y
        share = min(self.width / 2 / abs(dx) if dx else 9e9, self.height / 2 / abs(dy) if dy else 9e9)
        return self.x + dx * share, self.y + dy * share


@dataclass(frozen=True)
class Arrow:
    """An arrow between two boxes, through points if it has to go round; `at` is its label's place on the first leg."""

    start: str
    end: str
    label: str = ""
    through: tuple[tuple[int, int], ...] = ()
    shift: tuple[int, int] = (0, 0)
    at: float = 0.5


@dataclass
class Diagram:
    """A picture: its size, what it says in words, boxes by name, arrows, and named areas (x, y, width, height)."""

    size: tuple[int, int]
    words: str
    boxes: dict[str, Box]
    arrows: list[Arrow]
    areas: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    def svg(self) -> str:
        """Return the picture."""
        width, height = self.size
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            f"<title>{escape(self.words)}</title><style>{STYLE}</style>",
            '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
            '<path class="head" d="M0,0 L9,4 L0,8 z"/></marker></defs>',
            f'<rect class="paper" width="{width}" height="{height}" rx="6"/>',
            *(area(name, *place) for name, place in self.areas.items()),
            *(self._arrow(each) for each in self.arrows),
            *(drawn(box) for box in self.boxes.values()),
        ]
        return "\n".join([*parts, "</svg>\n"])

    def _arrow(self, arrow: Arrow) -> str:
        start, end = self.boxes[arrow.start], self.boxes[arrow.end]
        first = arrow.through[0] if arrow.through else (end.x, end.y)
        last = arrow.through[-1] if arrow.through else (start.x, start.y)
        points = [start.edge(*first), *arrow.through, end.edge(*last)]
        path = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
        shape = f'<polyline class="arrow" marker-end="url(#head)" points="{path}"/>'
        (ax, ay), (bx, by) = points[0], points[1]
        x, y = ax + (bx - ax) * arrow.at + arrow.shift[0], ay + (by - ay) * arrow.at + arrow.shift[1]
        return shape + written(arrow.label, x, y, "label")


def drawn(box: Box) -> str:
    """Return a box with its text."""
    x, y = box.x - box.width / 2, box.y - box.height / 2
    shape = f'<rect class="{box.kind}" x="{x:.0f}" y="{y:.0f}" width="{box.width}" height="{box.height}" rx="6"/>'
    title, *others = box.text.splitlines()
    top = y + LINE + 3
    return (
        shape
        + written(title, box.x, top, "title")
        + "".join(written(line, box.x, top + LINE * n, "label") for n, line in enumerate(others, 1))
    )


def written(text: str, x: float, y: float, kind: str) -> str:
    """Return text, line below line."""
    return "".join(
        f'<text class="{kind}" x="{x:.0f}" y="{y + n * (LINE - 2):.0f}">{escape(line)}</text>'
        for n, line in enumerate(text.splitlines())
    )


def area(name: str, x: int, y: int, width: int, height: int) -> str:
    """Return a dashed area with its name."""
    shape = f'<rect class="area" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
    return f'{shape}<text class="name" x="{x + 10}" y="{y + 18}">{escape(name)}</text>'


REOPENED = "a job of the key ends, an operator\nchanges it, or its time comes"
DIAGRAMS = {
    "job-life": Diagram(
        (780, 450),
        "A job is queued or waits in later, runs, and ends succeeded, canceled, failed or dead.",
        {
            "enqueue": Box(75, 115, "enqueue", width=100),
            "queued": Box(300, 115, "queued", "wait", 150),
            "running": Box(530, 115, "running\ntoken, lease", width=140),
            "later": Box(300, 260, "waiting\ndelayed, retrying", "wait", 150),
            "done": Box(685, 260, "ended\nsucceeded,\ncanceled, discarded", "good", 140),
            "dead": Box(530, 400, "dead letter\nfailed, dead", "bad", 140),
        },
        [
            Arrow("enqueue", "queued", "now", shift=(0, -6)),
            Arrow("enqueue", "later", "with a delay", ((75, 260),), (68, -6), 1),
            Arrow("later", "queued", "promote,\nwhen due", shift=(34, -8)),
            Arrow("queued", "running", "claim", shift=(0, -6)),
            Arrow("running", "queued", "release, or reclaim after a lost lease", ((530, 40), (300, 40)), (-115, -8), 1),
            Arrow("running", "later", "retry, snooze", ((500, 260),), (-62, -6), 1),
            Arrow("running", "done", "finish", ((685, 115),), (20, -6)),
            Arrow("running", "dead", "no attempt\nis left", shift=(42, 62)),
            Arrow("dead", "later", "a person retries", ((300, 400),), (0, -6)),
            Arrow("dead", "done", "a person\ndiscards", ((685, 400),), (-6, 16), 0.8),
        ],
        {
            "live": (210, 68, 410, 86),
            "later": (210, 210, 180, 84),
            "history": (600, 202, 170, 98),
            "dead": (446, 352, 168, 82),
        },
    ),
    "parts": Diagram(
        (780, 300),
        "Applications enqueue into PostgreSQL; workers claim and finish; service and command line read and operate.",
        {
            "app": Box(110, 70, "your application\nenqueue, in its\nown transaction", width=170),
            "sql": Box(110, 220, "other languages\nSQL functions, HTTP", width=170),
            "db": Box(390, 145, "PostgreSQL\nevery change of a job's\nstate is one SQL function", "good", 210),
            "worker": Box(670, 60, "workers\nclaim, run, finish", width=170),
            "leader": Box(670, 145, "one of them leads\npromote, reclaim, fire\nschedules, prune", width=170),
            "people": Box(670, 245, "service, dashboard, CLI\nread and operate", width=190),
        },
        [
            Arrow("app", "db", "COMMIT", shift=(0, -8)),
            Arrow("sql", "db"),
            Arrow("db", "worker", "NOTIFY, only\nif it sleeps", shift=(-48, -14)),
            Arrow("leader", "db"),
            Arrow("people", "db"),
        ],
    ),
    "ring": Diagram(
        (780, 330),
        "The ring of a queue: flows of tenants in turn, each with its lanes; jobs of an open lane in order.",
        {
            "f0": Box(130, 80, "flow 0\nplain jobs", width=150),
            "f1": Box(390, 80, "flow of acme\ntag 17", width=150),
            "f2": Box(650, 80, "flow of globex\ntag 23", width=150),
            "l0": Box(95, 200, "lane 0\nopen", "good", 110),
            "l1": Box(250, 200, "acme, domain:a\nopen", "good", 140),
            "l2": Box(405, 200, "acme, domain:b\nopen", "good", 140),
            "l3": Box(560, 200, "acme, domain:c\nclosed by domain:c", "bad", 150),
            "l4": Box(705, 200, "globex\nopen", "good", 110),
            "jobs": Box(250, 290, "live: jobs in the order run_at, id", "wait", 260),
        },
        [
            Arrow("f0", "f1", "then", shift=(0, -6)),
            Arrow("f1", "f2", "then", shift=(0, -6)),
            Arrow("f0", "l0"),
            Arrow("f1", "l1"),
            Arrow("f1", "l2"),
            Arrow("f2", "l4"),
            Arrow("l1", "jobs"),
        ],
        {"ring of queue mail, priority 2: least recently served first": (20, 20, 740, 105)},
    ),
    "fold": Diagram(
        (780, 210),
        "Enqueue and finish append; the claim that holds the ring's lock folds, then runs rounds, and returns jobs.",
        {
            "ends": Box(110, 60, "enqueue, finish\nany number at once", width=170),
            "logs": Box(110, 160, "arrivals, releases\nappended rows", "wait", 170),
            "claim": Box(370, 160, "claim\nholds the ring's lock", width=170),
            "state": Box(680, 160, "lanes, flows, limits\none writer", "good", 160),
            "worker": Box(370, 60, "worker\njobs under one token", width=170),
        },
        [
            Arrow("ends", "logs", "append", shift=(34, 4)),
            Arrow("logs", "claim", "fold", shift=(0, -6)),
            Arrow("claim", "state", "claim_round,\nwhile there is room", shift=(0, -20)),
            Arrow("claim", "worker", "return", shift=(30, 4)),
        ],
    ),
    "lane-life": Diagram(
        (780, 150),
        "A lane is empty, open or closed.",
        {
            "empty": Box(110, 75, "empty", width=110),
            "open": Box(370, 75, "open", "good", 110),
            "closed": Box(660, 75, "closed", "bad", 110),
        },
        [
            Arrow("empty", "open", "a job arrives", ((150, 35), (330, 35)), (90, -8), 1),
            Arrow("open", "empty", "its jobs are claimed", ((330, 115), (150, 115)), (-90, 20), 1),
            Arrow("open", "closed", "a key has no room", ((410, 35), (620, 35)), (105, -8), 1),
            Arrow("closed", "open", REOPENED, ((620, 115), (410, 115)), (-105, 16), 1),
        ],
    ),
}


def main() -> int:
    """Write the diagrams, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when one differs")
    check = parser.parse_args().check
    stale = [name for name, each in DIAGRAMS.items() if changed(FOLDER / f"{name}.svg", each.svg(), check)]
    if check and stale:
        print(f"these differ from tools/diagrams.py: {', '.join(stale)}; run: make diagrams", file=sys.stderr)
    return int(check and bool(stale))


def changed(path: Path, text: str, check: bool) -> bool:
    """Return whether a file differs; write it unless only a check is wanted."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if not check:
        path.write_text(text, encoding="utf-8")
    return before != text


if __name__ == "__main__":
    raise SystemExit(main())
