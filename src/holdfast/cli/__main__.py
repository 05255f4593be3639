"""`python -m holdfast.cli`: how supervised workers are started, whatever is on PATH."""

from holdfast.cli import main

main()
