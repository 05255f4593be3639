"""The embedded server, and scratch databases on it."""
