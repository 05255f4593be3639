"""Find messages by the values they were emitted with, and describe the nearest when none fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.client import Channel
from holdfast.model.outbox import MessageInfo
from holdfast.testing.enqueued import SHOWN, as_json, short


class WantedMessage:
    """A description that messages are compared with; None, or ... for a payload, is not compared."""

    def __init__(
        self,
        channel: Channel[Any, Any] | str | None,
        payload: Any,
        key: str | None,
        tenant: str | None,
        order: str | None,
    ) -> None:
        name = channel.name if isinstance(channel, Channel) else channel
        values = {"channel": name, "key": key, "tenant": tenant, "order": order}
        self._values = {field: value for field, value in values.items() if value is not None}
        if payload is not ...:
            self._values["payload"] = as_json(payload)

    def fits(self, it: MessageInfo) -> bool:
        """Return whether the message fits."""
        return not self._differences(it)

    def nearest(self, messages: Sequence[MessageInfo]) -> str:
        """Describe the messages, nearest first."""
        if not messages:
            return "nothing was emitted in this test"
        near = sorted(messages, key=lambda it: len(self._differences(it)))
        lines = [f"{len(messages)} emitted in this test, nearest first:"]
        for it in near[:SHOWN]:
            lines.append(f"  {it.idempotency_key} {short(it.payload)} {it.status}")
            lines += [f"      {text}" for text in self._differences(it)]
        return "\n".join(lines + ([f"  ... and {len(near) - SHOWN} more"] if len(near) > SHOWN else []))

    def __str__(self) -> str:
        return ", ".join(f"{name}={short(value)}" for name, value in self._values.items()) or "anything"

    def _differences(self, it: MessageInfo) -> list[str]:
        return [
            f"{name} is {short(getattr(it, name))}, not {short(value)}"
            for name, value in self._values.items()
            if value != getattr(it, name)
        ]
