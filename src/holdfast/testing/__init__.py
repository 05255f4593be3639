"""The test kit: a real database for each test, the real worker run until nothing is due, and a clock to set.

With pytest, use the fixture `holdfast_kit`; elsewhere use scratch_server(), scratch_database() and bind(), which are
context managers. Production code imports nothing from here.
"""

from holdfast.testing.bind import bind
from holdfast.testing.clock import Clock
from holdfast.testing.databases import Databases, scratch_database, scratch_server
from holdfast.testing.drain import Attempt, Drained
from holdfast.testing.kit import Kit

__all__ = ["Attempt", "Clock", "Databases", "Drained", "Kit", "bind", "scratch_database", "scratch_server"]
