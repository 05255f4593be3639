"""The client: the application object, its tasks, and handles of jobs."""

from holdfast.client.app import Holdfast
from holdfast.client.batch import Batch
from holdfast.client.channel import Channel
from holdfast.client.handle import Handle, Handles
from holdfast.client.task import Dedupe, Enqueuer, Task

__all__ = ["Batch", "Channel", "Dedupe", "Enqueuer", "Handle", "Handles", "Holdfast", "Task"]
