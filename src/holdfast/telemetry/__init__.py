"""Logs, metrics, traces and failure reports."""
