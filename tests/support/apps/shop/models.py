"""A row of the project's own, in a table that tests make."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order."""

    id = models.IntegerField(primary_key=True)

    class Meta:
        managed = False
        db_table = "orders"
