"""Holdfast beside other job systems, on one machine in one run: `python -m bench.peers`. See README.md."""
