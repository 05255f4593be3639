"""Text whose every character can be seen."""

from __future__ import annotations

import re

# Controls but for newline and tab, characters that change the direction or are invisible, and lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Return a text whose invisible characters are written as escapes."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
