"""An application without tasks of its own, for workers that deliver webhooks."""

from holdfast import Holdfast, Retry

hf = Holdfast()
hf.webhooks.retry = Retry.fixed(0.2, max_attempts=10)
