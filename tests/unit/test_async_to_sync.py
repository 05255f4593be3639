"""Sync modules are generated from async ones, and `make check` fails when one was edited by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

ORIGINAL = '''"""Send greetings."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.store.wire.pools_async import AsyncPool


class Greeter:
    """Greets people."""

    async def greet(self, pool: AsyncPool, call: Any) -> Any:
        """Greet twice."""
        async with pool.lent() as conn:  # await is a word here
            async for each in conn.notifies():
                await asyncio.sleep(1)  # a pause
                return [await each, "for"]
'''
GENERATED = '''# Generated from greet_async.py by tools/async_to_sync.py. Change that file, and run `make sync`.
"""Send greetings."""

from __future__ import annotations

import time
from typing import Any

from holdfast.store.wire.pools_sync import SyncPool


class Greeter:
    """Greets people."""

    def greet(self, pool: SyncPool, call: Any) -> Any:
        """Greet twice."""
        with pool.lent() as conn:  # await is a word here
            for each in conn.notifies():
                time.sleep(1)  # a pause
                return [each, "for"]
'''


@pytest.fixture
def original(tmp_path: Path) -> Path:
    path = tmp_path / "greet_async.py"
    path.write_text(ORIGINAL, encoding="utf-8")
    return path


def generate(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools/async_to_sync.py", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_sync_module_is_the_async_one_without_async_names_and_keywords(original: Path) -> None:
    assert generate(original).returncode == 0
    assert original.with_name("greet_sync.py").read_text(encoding="utf-8") == GENERATED


def test_the_check_fails_for_a_generated_file_that_was_edited_by_hand(original: Path) -> None:
    generate(original)
    assert generate("--check", original).returncode == 0
    sync = original.with_name("greet_sync.py")
    sync.write_text(GENERATED.replace("sleep(1)", "sleep(2)"), encoding="utf-8")
    checked = generate("--check", original)
    assert checked.returncode == 1
    assert "-                time.sleep(2)  # a pause\n+                time.sleep(1)  # a pause" in checked.stdout
    assert "run `make sync`" in checked.stdout
    assert "sleep(2)" in sync.read_text(encoding="utf-8"), "a check writes nothing"


def test_the_check_fails_when_the_original_changed_or_nothing_was_generated(original: Path) -> None:
    assert generate("--check", original).returncode == 1
    generate(original)
    original.write_text(ORIGINAL.replace('"for"', '"more"'), encoding="utf-8")
    assert generate("--check", original).returncode == 1


def test_an_async_name_without_a_sync_name_is_refused(original: Path) -> None:
    original.write_text(ORIGINAL.replace("AsyncPool", "AsyncQueue"), encoding="utf-8")
    refused = generate(original)
    assert refused.returncode == 1
    assert "greet_async.py: no sync name for AsyncQueue; add it to NAMES" in refused.stderr


def test_the_modules_of_this_checkout_are_up_to_date() -> None:
    checked = generate("--check")
    assert checked.returncode == 0, checked.stdout
