"""Remove secrets, URL queries and personal data from a text.

Error texts quote the data of handlers, so no such text goes to a log line or to Sentry unscrubbed. A word in brackets
replaces what was removed and names its kind. Doubtful text is removed too: an error is identified by its task, type and
location, not by its text.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable

LONGEST = 20_000  # characters scrubbed; the rest is cut off
_MARGIN = 500  # characters scrubbed beyond a shorter limit, so that a secret at the limit is recognized as a whole

_PRIVATE = (  # parts of names whose values are private
    r"[\w.-]{0,40}(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|auth(?:orization)?|cookie|session(?:[_-]?id)?|signature|sig|credentials?|otp|pin|cvv|cvc|ssn|iban"
    r"|card(?:[_-]?number)?|e?mail|phone|birth(?:day|date)?|dob)[\w.-]{0,20}"
)
_KNOWN_TOKENS = (
    r"(?:sk|pk|rk)[_-](?:live|test|proj|ant)?[_-]?[\w-]{12,}|gh[pousr]_\w{16,}|github_pat_\w{20,}|glpat-[\w-]{12,}"
    r"|xox[a-z]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w.-]{10,}|whsec_[\w+/=-]{8,}|hf_[\w-]{16,}"
    r"|npm_\w{20,}|pypi-[\w-]{20,}|SG\.[\w.-]{16,}|dop_v1_\w{20,}|eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?"
)


def _has_both(text: str) -> bool:
    """Return whether a long word looks random: digits among letters."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        number = int(digit) * (1 + place % 2)
        total += number - 9 if number > 9 else number
    return total % 10 == 0


def _card(match: re.Match[str]) -> str:
    digits = re.sub(r"\D", "", match[0])
    return "[card]" if 13 <= len(digits) <= 19 and _luhn(digits) else match[0]


def _address(match: re.Match[str]) -> str:
    try:
        return "[address]" if ipaddress.ip_address(match[0].strip("[]")).is_global else match[0]
    except ValueError:
        return match[0]


def _long(match: re.Match[str]) -> str:
    return "[token]" if _has_both(match[0]) else match[0]


def _query(match: re.Match[str]) -> str:
    # A URL without a query is matched too: otherwise each "://" within it would be scanned to its end.
    return match[0] if match[2] is None else f"{match[1]}?[query]"


_QUOTED = r"""[bru]{0,2}(?:"(?:[^"\\]|\\+.){0,4000}"?|'(?:[^'\\]|\\+.){0,4000}'?)"""
_VALUE = (  # quoted; quoted within a quoted text; a list or dict; a repr(); otherwise a word
    rf"(?:{_QUOTED}|(?P<quote>\\{{1,8}}[\"'])(?:(?!(?P=quote))[^\n]){{0,4000}}(?:(?P=quote))?"
    r"|\[[^\]]{0,4000}\]?|\{[^}]{0,4000}\}?|\w{1,40}\([^()]{0,4000}\)?|[^\s,;&)}\]]+)"
)
_DONE = r"(?!\[(?:query|token|key|secret|payload|email|row)\])"

_STEPS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]{1,40}-----.*?(?:-----END [A-Z ]{1,40}-----|\Z)", re.S), "[key]"),
    # row values in PostgreSQL's errors
    (re.compile(r"(\bKey \([^\n]{1,500}?\)=\()[^\n]{1,4000}\)"), r"\1[row])"),
    (re.compile(r"(\bFailing row contains \()[^\n]{1,4000}\)"), r"\1[row])"),
    # scheme://user:password@host, plain or percent-encoded, or without the scheme
    (re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)[^\s/?#\"'<>]{1,500}@", re.I), r"\1"),
    (re.compile(r"(%3A%2F%2F)[^\s/?#&\"'<>]{1,500}%40", re.I), r"\1"),
    (re.compile(r"(?<![\w.%+~-])[\w.%+~-]{1,64}:[^\s@/:,;\"'<>()]{1,200}@(?=[\w\[])"), "[secret]@"),
    # the query and fragment of a URL or of a path
    (re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s?#\"'<>]*)([?#][^\s\"'<>]*)?", re.I), _query),
    (re.compile(r"\?[\w.\[\]%~-]{1,80}=[^\s\"'<>]*"), "?[query]"),
    # headers, to the end of the line: their values contain spaces and semicolons
    (
        re.compile(
            r"(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie)(\s?[:=]\s?)(?![\"'\[{])[^\s\"'][^\r\n\"'\\]*", re.I
        ),
        r"\1\2[secret]",
    ),
    (re.compile(r"\b(bearer|basic|digest|negotiate)\s+[\w.~+/=:-]{6,}", re.I), r"\1 [token]"),
    # name=value, "name": "value", name: value; ("name", "value"); --name value; <name>value
    (
        re.compile(
            rf"(?<![\w.-])([\"']?{_PRIVATE}(?:\\{{0,8}}[\"'])?\s{{0,3}}"
            rf"(?:=>|->|:=|==|=(?![=>])|:(?!=)|%3[AD])\s{{0,8}}){_DONE}{_VALUE}",
            re.I,
        ),
        r"\1[secret]",
    ),
    (re.compile(rf"([\"']{_PRIVATE}[\"']\s{{0,3}},\s{{0,3}}){_QUOTED}", re.I), r"\1[secret]"),
    (re.compile(rf"((?<!\S)--{_PRIVATE}\s{{1,3}}){_DONE}[^\s\"']+", re.I), r"\1[secret]"),
    (re.compile(rf"(<{_PRIVATE}>){_DONE}[^<]{{1,4000}}", re.I), r"\1[secret]"),
    (re.compile(rf"(?<![\w-])(?:{_KNOWN_TOKENS})"), "[token]"),
    (re.compile(r"[\w.+%'-]{1,64}(?:@|%40)[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"), "[email]"),
    (re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b"), "[iban]"),
    (re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])"), _card),
    (re.compile(r"\b\d{3}-\d{2}-\d{4}\b"), "[ssn]"),
    (re.compile(r"(?<![\w+])\+\d[\d ().-]{6,18}\d\b|(?<!\w)\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}\b"), "[phone]"),
    (re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)"), _address),
    (re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}|:)(?::[0-9a-f]{0,4}){2,7}(?![\w:])", re.I), _address),
    (re.compile(r"(?<![\w-])(?:[0-9a-f]{32,}|[\w+/=-]{40,})(?![\w-])", re.I), _long),
)


def scrub(text: str, known: Iterable[str] = (), limit: int = LONGEST) -> str:
    """Return up to `limit` characters of the text without secrets, queries and personal data, and without the `known`
    private values. The text is cut first, so that a long one costs no more than the part that is kept."""
    size = len(text)
    if known := [value for value in known if value]:
        text = _without(text, known, limit + _MARGIN)
    text = text[: limit + _MARGIN]
    for pattern, instead in _STEPS:
        text = pattern.sub(instead, text)
    return text if size <= limit else f"{text[:limit]} ... {size - limit} characters cut"


def _without(text: str, known: list[str], enough: int) -> str:
    """Return the first `enough` characters without the values that begin in them, even if the cut splits one."""
    values = re.compile("|".join(map(re.escape, sorted(known, key=len, reverse=True))))
    parts: list[str] = []
    at = 0
    for match in values.finditer(text, 0, enough + max(map(len, known))):
        if match.start() >= enough:
            break
        parts += text[at : match.start()], "[payload]"
        at = match.end()
    return "".join([*parts, text[at:enough]])
