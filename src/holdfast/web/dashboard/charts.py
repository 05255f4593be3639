"""Charts as SVG, drawn from numbers: no script, no inline style. Colors come from classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from holdfast.web.dashboard.visible import visible

Numbers = Sequence[float | None]
Ends = tuple[str, str] | tuple[()]  # the first and the last time
_GAP = 0.18  # of a bar's place
_BAR = Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>')
_SVG = Markup('<svg class="{}" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" preserveAspectRatio="none">')


def sparkline(values: Numbers, title: str, *, width: int = 96, height: int = 20) -> Markup:
    """Return a line without axes, for a row of a table."""
    top = _top([values])
    body = _area(values, top, width, height, "spark-area") + _line(values, top, width, height, "spark-line")
    return _svg("spark", width, height, title, _summary(values), body)


def lines(
    series: Mapping[str, Numbers], title: str, unit: str = "", *, ends: Ends = (), width: int = 560, height: int = 120
) -> Markup:
    """Return lines on one scale, the first with its area filled. Classes `line-1`, `line-2` and so on color them."""
    top = _top(series.values())
    body = _grid(width, height)
    for place, values in enumerate(series.values(), 1):
        if place == 1:
            body += _area(values, top, width, height, "area-1")
        body += _line(values, top, width, height, f"line-{place}")
    text = "; ".join(f"{name}: {_summary(values)}" for name, values in series.items())
    empty = all(each is None for values in series.values() for each in values)
    return _box(_svg("chart", width, height, title, text, body), top, unit, ends, empty)


def bars(
    values: Numbers, title: str, over: Numbers = (), *, ends: Ends = (), width: int = 560, height: int = 120
) -> Markup:
    """Return bars; the part `over` of each, such as failures, is drawn in front with the class `bar-over`."""
    top, body = _top([values]), _grid(width, height)
    step = width / max(1, len(values))
    for name, numbers in (("bar", values), ("bar-over", over)):
        for place, value in enumerate(numbers):
            tall = height * min(1.0, (value or 0) / top)
            if tall > 0:
                left, wide = step * (place + _GAP / 2), step * (1 - _GAP)
                body += _BAR.format(name, left, height - tall, wide, tall)
    return _box(_svg("chart", width, height, title, _summary(values), body), top, "", ends, not any(values))


def meter(part: float, whole: float, title: str, *, width: int = 80, height: int = 6) -> Markup:
    """Return how much of a whole is used."""
    share = min(1.0, part / whole) if whole > 0 else 0.0
    name = "meter-full" if share >= 1 else "meter-part"
    track = Markup('<rect class="meter-track" width="{}" height="{}" rx="3"/>').format(width, height)
    used = Markup('<rect class="{}" width="{:.1f}" height="{}" rx="3"/>').format(name, share * width, height)
    return _svg("meter", width, height, title, f"{share:.0%}", track + (used if share else Markup("")))


def against(part: float, fair: float | None, title: str, *, width: int = 160, height: int = 14) -> Markup:
    """Return a part of 1 as a bar, with a mark at the fair part."""
    text = f"{part:.0%}" + (f", fair {fair:.0%}" if fair is not None else "")
    track = Markup('<rect class="meter-track" y="4" width="{}" height="6" rx="3"/>').format(width)
    used = Markup('<rect class="meter-part" y="4" width="{:.1f}" height="6" rx="3"/>').format(width * min(1.0, part))
    body = track + (used if part else Markup(""))
    if fair is not None:
        body += Markup('<rect class="mark" x="{:.1f}" width="2" height="{}"/>').format((width - 2) * fair, height)
    return _svg("meter", width, height, title, text, body)


def progress(
    succeeded: int, failed: int, canceled: int, whole: int, title: str, *, width: int = 120, height: int = 6
) -> Markup:
    """Return the ended parts of a whole, side by side."""
    parts = {"part-good": succeeded, "part-bad": failed, "part-rest": canceled}
    body, left = Markup('<rect class="meter-track" width="{}" height="{}"/>').format(width, height), 0.0
    for name, part in parts.items():
        wide = width * part / whole if whole > 0 else 0.0
        body += _BAR.format(name, left, 0, wide, height) if part else Markup("")
        left += wide
    text = f"{succeeded:,} succeeded, {failed:,} failed and {canceled:,} canceled of {whole:,}"
    return _svg("progress", width, height, title, text, body)


def ceiling(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, 50 and so on."""
    size = 1.0
    while size < value:
        size *= 10
    return next(each for each in (size / 10, size / 5, size / 2, size) if each >= value) if size > 1 else size


def _top(series: object) -> float:
    found = [each for values in series for each in values if each is not None]  # type: ignore[attr-defined]
    highest = max(found, default=0.0)
    return ceiling(highest) if highest >= 1 else (highest or 1.0)


def _points(values: Numbers, top: float, width: int, height: int) -> list[list[tuple[float, float]]]:
    """Return the points of each run of values; None is a gap."""
    step = width / max(1, len(values) - 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((place * step, height - 1 - (height - 2) * min(1.0, value / top)))
    return [run for run in runs if run]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{'L' if place else 'M'}{x:.1f} {y:.1f}" for place, (x, y) in enumerate(points))


def _line(values: Numbers, top: float, width: int, height: int, name: str) -> Markup:
    path = " ".join(_path(run) if len(run) > 1 else _path(run) + "h1" for run in _points(values, top, width, height))
    return Markup('<path class="{}" d="{}"/>').format(name, path) if path else Markup("")


def _area(values: Numbers, top: float, width: int, height: int, name: str) -> Markup:
    runs = _points(values, top, width, height)
    path = " ".join(f"{_path(run)} V{height} H{run[0][0]:.1f} Z" for run in runs if len(run) > 1)
    return Markup('<path class="{}" d="{}"/>').format(name, path) if path else Markup("")


def _grid(width: int, height: int) -> Markup:
    """Return two lines: the top of the scale, and its half."""
    ways = "".join(f"M0 {height - 1 - (height - 2) * share:.1f}H{width}" for share in (1.0, 0.5))
    return Markup('<path class="grid" d="{}"/>').format(ways)


def _box(chart: Markup, top: float, unit: str, ends: Ends, empty: bool) -> Markup:
    """Return a chart with the numbers of its scale (a stretched SVG would distort them) and its first and last time."""
    texts = {"top": top, "half": top / 2}
    spans = [Markup('<span class="scale scale-{}">{}{}</span>').format(k, _scale(v), unit) for k, v in texts.items()]
    if empty:
        spans = [Markup('<span class="scale scale-none">no data yet</span>')]
    if ends:
        spans.append(Markup('<p class="ends"><span>{}</span><span>{}</span></p>').format(*ends))
    return Markup('<div class="chart-box">') + chart + Markup("").join(spans) + Markup("</div>")


def _summary(values: Numbers) -> str:
    found = [each for each in values if each is not None]
    if not found:
        return "no values"
    return f"now {found[-1]:,.4g}, lowest {min(found):,.4g}, highest {max(found):,.4g}"


def _svg(name: str, width: int, height: int, title: str, text: str, body: Markup) -> Markup:
    words = Markup("<title>{}</title><desc>{}</desc>").format(visible(title), visible(text))
    return _SVG.format(name, w=width, h=height) + words + body + Markup("</svg>")


def _scale(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
