"""The numbers of a limit are the same in every layer."""

from __future__ import annotations

import re
from dataclasses import fields

import typer.main

from holdfast.cli.app import app
from holdfast.model.limit import NUMBERS, LimitInfo
from holdfast.web.dashboard import limits as dashboard
from holdfast.web.limits import LimitChange
from tests.conftest import ROOT

SQL = ROOT / "src/holdfast/sql/functions/limits/check_limit.sql"


def test_each_layer_has_all_numbers_of_a_limit_and_no_other() -> None:
    group = typer.main.get_command(app).commands["limits"]  # type: ignore[attr-defined]
    options = [each.name for each in group.commands["set"].params]
    names = re.search(r"v_known text\[\] := '{(.*?)}'", SQL.read_text())
    assert names and tuple(names[1].split(",")) == NUMBERS
    assert tuple(options[: len(NUMBERS) + 1]) == ("key", *NUMBERS)
    assert set(LimitChange.__struct_fields__) == {"key", "reason", *NUMBERS}
    assert set(dashboard.NUMBERS) == set(NUMBERS)
    assert set(NUMBERS) < {each.name for each in fields(LimitInfo)}
