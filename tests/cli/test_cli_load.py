"""MODULE:ATTRIBUTE: found, or an error that says what was found instead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast.cli.load import load_app, redirect

APP = """
from holdfast import Holdfast
hf = Holdfast()
other = 42
class Group:
    hf = hf
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project's folder as the current one, with an application in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "shop_app.py").write_text(APP)
    (tmp_path / "broken_app.py").write_text("import os\n\nnot_defined()\n")
    (tmp_path / "unreadable_app.py").write_text("def (:\n")
    (tmp_path / "needy_app.py").write_text("import surely_not_installed\n")
    (tmp_path / "unset_app.py").write_text("import os\n\nDSN = os.environ['SURELY_NOT_SET']\n")
    (tmp_path / "deep_app.py").write_text("import unset_app\n")
    (tmp_path / "parsing_app.py").write_text("import ast\nast.literal_eval('1 +')\n")
    (tmp_path / ".venv/site-packages").mkdir(parents=True)
    (tmp_path / ".venv/site-packages/picky_library.py").write_text("def check():\n    raise ValueError('no')\n")
    (tmp_path / "picked_app.py").write_text(
        "import sys\nsys.path.append('.venv/site-packages')\nimport picky_library\npicky_library.check()\n"
    )
    yield tmp_path
    for name in ("shop_app", "broken_app", "unreadable_app", "needy_app", "picky_library"):
        sys.modules.pop(name, None)


def test_an_application_is_found_in_the_current_folder() -> None:
    assert isinstance(load_app("shop_app:hf"), Holdfast)
    assert isinstance(load_app("shop_app:Group.hf"), Holdfast)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("shop_ap:hf", "there is no module 'shop_ap' in .*; did you mean 'shop_app'"),
        ("nothing.like.it:hf", "there is no module 'nothing'"),
        ("shop_app:hff", "has no 'hff'; did you mean 'hf'"),
        ("shop_app:xyz", "has no 'xyz'; did you mean shop_app:hf"),
        ("shop_app:other", "shop_app:other is of type int, not a Holdfast application; did you mean shop_app:hf"),
        ("shop_app", "names no attribute; write MODULE:ATTRIBUTE, as in shop_app:hf"),
        ("json:xyz", "module 'json' has no 'xyz'; json holds no Holdfast application"),
        (":hf", "names no module"),
        ("json:dumps", "is of type function, not a Holdfast application; json holds none"),
        ("broken_app:hf", r"importing 'broken_app' failed at .*broken_app.py:3: NameError: name 'not_defined'"),
        ("unreadable_app:hf", r"importing 'unreadable_app' failed at .*unreadable_app.py:1: SyntaxError"),
        ("unset_app:hf", r"failed at [^<>]*unset_app.py:3: KeyError: 'SURELY_NOT_SET'"),
        ("deep_app:hf", r"importing 'deep_app' failed at [^<>]*unset_app.py:3: KeyError"),
        ("parsing_app:hf", r"failed at [^<>]*parsing_app.py:2: SyntaxError"),
        ("picked_app:hf", r"failed at [^<>]*picked_app.py:4: ValueError: no"),
        ("needy_app:hf", "failed at .*needy_app.py:1: ModuleNotFoundError: No module named 'surely_not_installed'"),
    ],
)
def test_what_cannot_be_loaded_is_explained(target: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        load_app(target)


def test_options_win_over_what_the_application_says() -> None:
    hf = Holdfast("postgresql://elsewhere", schema="theirs", lease=120)
    redirect(hf, dsn="postgresql://here", schema="ours", lease=None)
    assert (hf.settings.dsn, hf.settings.schema, hf.settings.lease) == ("postgresql://here", "ours", 120)
    assert hf.database.calls.schema == "ours"
