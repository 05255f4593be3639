"""Templates, and how values are shown: escaped, with control characters visible, long ones cut.

Values of jobs come from anybody. Every expression of a template passes through `_finalize`, so a page shows nothing raw
unless it is markup that a macro or a chart has made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from markupsafe import Markup

from holdfast.web.dashboard import charts
from holdfast.web.dashboard.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment, Template

FOLDER = Path(__file__).parent.parent / "templates"
NONE = "\N{EN DASH}"
MACROS = ("ui", "change")  # templates whose macros every page has
CONTENT = "content"  # block of the whole page, which uses what its template imports: no fragment
LONGEST = 200  # characters of a value in a list
LONGEST_BLOCK = 20_000  # characters of a value in a block of its own
LONGEST_INDENTED = 200_000  # bytes of JSON that are indented
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))


def cut(value: object, most: int = LONGEST) -> str:
    """Return a value as text of at most `most` characters, with the number of characters left out."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if len(text) <= most:
        return visible(text)
    return f"{visible(text[:most])}… {len(text) - most:,} more characters"


def json_text(value: object, most: int = LONGEST_BLOCK) -> str:
    """Return JSON, indented unless it is very long."""
    data = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    if len(data) <= LONGEST_INDENTED:
        data = msgspec.json.format(data, indent=2)
    return cut(data, most)


def seconds(value: float | None) -> str:
    """Return a duration in the unit that fits: 4 ms, 1.2 s, 66 s, 3 m 5 s, 2 h 10 m, 3 d 4 h."""
    if value is None:
        return NONE
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 9.95:
        return f"{value:.1f} s"
    if value < 119.5:
        return f"{value:.0f} s"
    rest = round(value)
    for size, (length, unit) in enumerate(_UNITS):
        if rest >= length:
            smaller, name = (*_UNITS, (1, "s"))[size + 1]
            more = rest % length // smaller
            return f"{rest // length} {unit}" + (f" {more} {name}" if more else "")
    return f"{rest} s"


def brief(value: float | None) -> str:
    """Return a duration in its largest unit alone: 2 m, where a tile is narrow."""
    return " ".join(seconds(value).split()[:2])


def number(value: float | None, estimated: bool = False) -> str:
    """Return a count with separators; an estimate with a tilde."""
    return NONE if value is None else f"{'~' if estimated else ''}{round(value):,}"


def rate(value: float | None) -> str:
    """Return a rate with two digits, or as a whole number."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2g}"


def when(value: datetime | str | None, now: datetime | None = None) -> Markup | str:
    """Return a time as `<time>`: how long ago or ahead, which live.js keeps up to date, and in full as its title."""
    if value is None:
        return NONE
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    ahead = (at - (now or datetime.now(UTC))).total_seconds()
    words = "now" if abs(ahead) < 1 else f"in {seconds(ahead)}" if ahead > 0 else f"{seconds(-ahead)} ago"
    full = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    markup = Markup('<time datetime="{}" title="{}" data-ahead="{}">{}</time>')
    return markup.format(at.isoformat(), full, round(ahead, 3), words)


def _finalize(value: object) -> object:
    return value if isinstance(value, Markup | int | float) else visible(str(value))


class Renderer:
    """The templates, compiled once."""

    @cached_property
    def _templates(self) -> Environment:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        loader = FileSystemLoader(FOLDER)
        options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
        made = Environment(loader=loader, autoescape=True, auto_reload=False, finalize=_finalize, **options)
        shown = {
            "cut": cut,
            "json": json_text,
            "seconds": seconds,
            "brief": brief,
            "number": number,
            "rate": rate,
            "when": when,
        }
        made.filters.update(shown)
        made.globals["charts"] = charts
        for name in MACROS:  # not imported by pages: a fragment is rendered without what stands around it
            made.globals[name] = made.get_template(f"dashboard/{name}.html").module
        return made

    def page(self, name: str, values: Mapping[str, Any]) -> str:
        """Return a page."""
        return self._template(name).render(values)

    def fragments(self, name: str, blocks: Sequence[str], values: Mapping[str, Any]) -> str:
        """Return blocks of a page; unknown ones are left out."""
        return "\n".join(self._blocks(self._template(name), blocks, values))

    def _blocks(self, template: Template, blocks: Sequence[str], values: Mapping[str, Any]) -> Iterator[str]:
        context = template.new_context(dict(values))
        for each in blocks:
            if (block := self._block(template, each)) is not None:
                yield "".join(block(context))

    def _block(self, template: Template, name: str) -> Any:
        if name == CONTENT:
            return None
        shell = self._template("shell.html")  # every page has its blocks
        return template.blocks.get(name) or shell.blocks.get(name)

    def _template(self, name: str) -> Template:
        return self._templates.get_template(f"dashboard/{name}")
