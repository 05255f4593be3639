"""Generates the sync modules of src from the async ones: X_async.py is the original of X_sync.py.

It drops `async` and `await`, replaces names (NAMES), and formats with ruff; comments stay. With --check it compares
only, and fails when a generated file was edited by hand or its original has changed. Arguments are other originals.
"""

from __future__ import annotations

import difflib
import io
import re
import subprocess
import sys
import tokenize
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = "# Generated from {} by tools/async_to_sync.py. Change that file, and run `make sync`.\n"
NAMES = {
    "AsyncConnection": "Connection",
    "AsyncConnectionPool": "ConnectionPool",
    "AsyncExitStack": "ExitStack",
    "AsyncIterator": "Iterator",
    "AsyncPool": "SyncPool",
    "LoopCoalescer": "ThreadCoalescer",
    "LoopPools": "ThreadPools",
    "acopy_on": "copy_on",
    "afetch_rows": "fetch_rows",
    "aiterator": "iterator",
    "amethod": "method",
    "arun": "run",
    "aserve": "serve",
    "arun_on": "run_on",
    "arun_steps": "run_steps",
    "async_pool": "sync_pool",
    "asynccontextmanager": "contextmanager",
    "asyncio": "time",  # of which originals use `sleep` only
    "coroutines": "threads",
    "enter_async_context": "enter_context",
    "push_async_exit": "push",
}
DROPPED = ("async", "await")
_WORD = re.compile(r"\w+")


def convert(original: Path) -> str:
    """Return the text of the sync module."""
    text = _WORD.sub(_sync_name, _without_keywords(original.read_text(encoding="utf-8")))
    if left := sorted({word for word in _WORD.findall(text) if "async" in word.lower()}):
        raise SystemExit(f"{original}: no sync name for {', '.join(left)}; add it to NAMES in tools/async_to_sync.py")
    return _ruff("format", _ruff("check", HEAD.format(original.name) + text, "--fix-only", "--select=I"))


def _without_keywords(text: str) -> str:
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for token, after in reversed([*pairwise(tokens)]):  # from the end: positions stay valid
        if token.type == tokenize.NAME and token.string in DROPPED:
            (row, start), (_, end) = token.start, after.start
            lines[row - 1] = lines[row - 1][:start] + lines[row - 1][end:]
    return "".join(lines)


def _sync_name(match: re.Match[str]) -> str:
    return NAMES.get(match[0], re.sub("_async$", "_sync", match[0]))


def _sync_path(original: Path) -> Path:
    return original.with_name(original.name.replace("_async.py", "_sync.py"))


def _ruff(command: str, text: str, *options: str) -> str:
    run = [sys.executable, "-m", "ruff", command, "--quiet", "--config", "pyproject.toml", *options, "-"]
    return subprocess.run(run, input=text, cwd=ROOT, check=True, capture_output=True, encoding="utf-8").stdout


def main() -> int:
    """Write or check the files. Return 0 if they are up to date."""
    originals = [Path(name) for name in sys.argv[1:] if name != "--check"] or sorted(ROOT.glob("src/**/*_async.py"))
    stale = 0
    for original in originals:
        target, now = _sync_path(original), convert(original)
        if "--check" not in sys.argv:
            target.write_text(now, encoding="utf-8")
            continue
        kept = target.read_text(encoding="utf-8") if target.exists() else ""
        print(
            "".join(difflib.unified_diff(kept.splitlines(True), now.splitlines(True), str(target), "generated")), end=""
        )
        stale += kept != now
    if stale:
        print("a generated file is not what its original makes; change the original (X_async.py) and run `make sync`")
    else:
        print("the sync modules are up to date" if "--check" in sys.argv else f"wrote {len(originals)} sync modules")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
