"""No test, in tests/ or in an example, sees a developer's own settings. That is said here and not in examples/: of two
files of this name in folders side by side, `from conftest import` would find the one that was loaded last."""

import os

for _name in [name for name in os.environ if name.startswith("HOLDFAST_") and "TEST" not in name]:
    del os.environ[_name]
