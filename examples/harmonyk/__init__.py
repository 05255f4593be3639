"""Harmonyk's jobs queue: a small repository, and a tick endpoint instead of workers."""
