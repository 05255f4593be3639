"""The long suites, outside the package: `python -m bench -w blocked --json`. See RESULTS.md."""
