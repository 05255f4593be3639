"""What a caller may see: the rows of all tenants, or of one."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The rows that a call reads or changes: those of a tenant, or of all. Deliveries of webhooks are jobs too; a view
    without them leaves them out of the jobs that a call reads, or of those that it changes."""

    tenant: str | None = None
    reads_deliveries: bool = True
    changes_deliveries: bool = True

    @property
    def everyone(self) -> bool:
        """Return whether the view has the rows of all tenants."""
        return self.tenant is None

    @property
    def for_changes(self) -> View:
        """Return the view that reads what this one may change."""
        return replace(self, reads_deliveries=self.changes_deliveries)


EVERYTHING = View()
