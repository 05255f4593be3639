"""How values and charts are shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.web.dashboard import charts
from holdfast.web.dashboard.render import brief, cut, json_text, number, rate, seconds, visible, when

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.0042, "4 ms"),
        (0.9999, "1.0 s"),
        (9.94, "9.9 s"),
        (66.2, "66 s"),
        (185, "3 m 5 s"),
        (7200, "2 h"),
        (7800, "2 h 10 m"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_numbers_and_rates() -> None:
    assert [number(1234), number(1234, True), number(None)] == ["1,234", "~1,234", "\N{EN DASH}"]
    assert [rate(0.123), rate(9), rate(12.3), rate(1234)] == ["0.12", "9", "12", "1,234"]


def test_times_say_how_far_away_they_are() -> None:
    assert ">3 m ago</time>" in when(NOW - timedelta(minutes=3), NOW)
    assert ">in 66 s</time>" in when(NOW + timedelta(seconds=66), NOW)
    assert 'title="2030-01-01 00:00:00.000 UTC"' in when(NOW, NOW)
    assert 'data-ahead="66.0"' in when(NOW + timedelta(seconds=66), NOW), "the script counts from here"


@pytest.mark.parametrize("hidden", ["\x00", "\x1b", "\x7f", "\u200b", "\u202e", "\u2066", "\ufeff", "\ud800", "\r"])
def test_characters_that_cannot_be_seen_are_written_out(hidden: str) -> None:
    assert visible(f"a{hidden}b") == f"a\\u{ord(hidden):04x}b"


def test_long_values_are_cut_and_say_so() -> None:
    assert visible("é\n\tö😀") == "é\n\tö😀"
    assert cut("x" * 1000, 10) == "x" * 10 + "… 990 more characters"
    assert json_text({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'


def test_charts_have_a_title_and_no_style() -> None:
    made = charts.sparkline([1, None, 3], "<Jobs>")
    assert "<title>&lt;Jobs&gt;</title><desc>now 3, lowest 1, highest 3</desc>" in made and "style" not in made
    for chart in (charts.bars([], "t"), charts.lines({"p50": [None]}, "t"), charts.sparkline([], "t")):
        assert "no values" in chart
    assert "no data yet" in charts.bars([0, 0], "t") and "no data yet" not in charts.lines({"p50": [0.0]}, "t")
    ends = charts.bars([1], "t", ends=("1 h ago", "now"))
    assert '<p class="ends"><span>1 h ago</span><span>now</span></p>' in ends
    assert (brief(131.0), brief(0.2)) == ("2 m", "200 ms")
    assert charts.bars([4, 0, 2], "t", [1, 0, 2]).count("<rect") == 4
    assert 'class="meter-full"' in charts.meter(5, 4, "t") and "meter-part" in charts.meter(1, 4, "t")


@pytest.mark.parametrize(("value", "top"), [(1, 1), (1.5, 2), (3, 5), (7, 10), (11, 20), (999, 1000)])
def test_scales_end_at_a_round_number(value: float, top: float) -> None:
    assert charts.ceiling(value) == top
