"""Periodic maintenance, done by one worker of the fleet, the leader."""
