"""The tests. What several of them use is in tests/support/."""
