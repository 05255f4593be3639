"""Helpers of the tests, imported as tests.support.name."""
