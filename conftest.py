"""No test, in tests/ or in an example, sees a developer's own settings. That is said here and not in examples/: of two
files of this name in folders side by side, `from conftest import` would find the one that was loaded last."""

import os
from collections import Counter
from typing import Any

LONG = 60.0  # seconds
FILES = 15

for _name in [name for name in os.environ if name.startswith("HOLDFAST_") and "TEST" not in name]:
    del os.environ[_name]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show which files of a long run took longest: most of its time goes to many short tests."""
    spent: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "nodeid"):
                spent[report.nodeid.split("::")[0]] += report.duration
    if spent.total() > LONG:
        terminalreporter.section(f"slowest files, {spent.total():.0f} s in all")
        for file, seconds in spent.most_common(FILES):
            terminalreporter.write_line(f"{seconds:6.1f}s {file}")
