"""Views of the application that depend on Holdfast's views: migrate drops and recreates them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]

# Every view, except the schema's own, that depends directly or indirectly on a view or function in the schema. The
# nearest come first. A view depends on other objects through its rewrite rule.
_FOUND = """
WITH RECURSIVE made (view, away) AS (
    SELECT r.ev_class, 1 FROM pg_depend d JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
    WHERE (d.refclassid = 'pg_class'::regclass
           AND d.refobjid IN (SELECT oid FROM pg_class WHERE relkind = 'v' AND relnamespace = %(schema)s::regnamespace))
       OR (d.refclassid = 'pg_proc'::regclass
           AND d.refobjid IN (SELECT oid FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace))
    UNION
    SELECT r.ev_class, m.away + 1 FROM made m
    JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = m.view
    JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND r.ev_class <> m.view
    WHERE m.away < 100
)
SELECT c.oid FROM made m JOIN pg_class c ON c.oid = m.view
WHERE c.relkind = 'v' AND NOT (c.relnamespace = %(schema)s::regnamespace AND c.relname = ANY (%(ours)s))
GROUP BY c.oid ORDER BY max(m.away)
"""

# Statements that recreate a view: definition, owner, defaults, triggers, privileges and comment.
_DEFINITION = """
SELECT name, ARRAY[
    'CREATE VIEW ' || name || coalesce(' WITH (' || array_to_string(reloptions, ', ') || ')', '') || ' AS '
        || pg_get_viewdef(oid),
    'ALTER VIEW ' || name || ' OWNER TO ' || relowner::regrole
] || ARRAY(SELECT format('ALTER VIEW %%s ALTER %%I SET DEFAULT %%s', name, attname, pg_get_expr(adbin, adrelid))
           FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE adrelid = c.oid)
  || ARRAY(SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t WHERE tgrelid = c.oid AND NOT tgisinternal)
  || ARRAY(SELECT format('GRANT %%s ON %%s TO %%s%%s', privilege_type, name,
                         CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
                         CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
           FROM aclexplode(c.relacl) WHERE grantee <> c.relowner)
  || ARRAY(SELECT format('COMMENT ON VIEW %%s IS %%L', name, description)
           FROM pg_description WHERE classoid = 'pg_class'::regclass AND objoid = c.oid AND objsubid = 0)
FROM (SELECT *, oid::regclass::text AS name FROM pg_class WHERE oid = %s) c
"""


@dataclass(frozen=True, slots=True)
class Dependant:
    """A view of the application, and the statements that recreate it."""

    name: str
    statements: list[str]


def drop_dependants(conn: Connection, schema: str, ours: list[str]) -> list[Dependant]:
    """Drop the application's views that depend on ours; return them for recreate_dependants()."""
    found = [row[0] for row in conn.execute(_FOUND, {"schema": schema, "ours": ours}).fetchall()]
    dependants = [Dependant(*row) for oid in found for row in conn.execute(_DEFINITION, [oid]).fetchall()]
    for each in reversed(dependants):
        conn.execute(f"DROP VIEW {each.name}".encode())
    return dependants


def recreate_dependants(conn: Connection, dependants: list[Dependant]) -> None:
    """Recreate the dropped views."""
    for each in dependants:
        for statement in each.statements:
            conn.execute(statement.encode())
