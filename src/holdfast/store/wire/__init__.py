"""Connections: opening them, pools, deadlines, transactions, and connections borrowed from callers."""
