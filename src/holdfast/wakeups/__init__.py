"""Hints that cut latency. Polling always works without them."""
