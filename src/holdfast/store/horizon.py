"""What keeps vacuum from removing dead rows: open transactions, prepared ones, and replication slots."""

KINDS = ("transaction", "prepared transaction", "replication slot")
OLD = 300.0  # seconds from which a transaction counts as holding the horizon
# Sessions of other roles are seen only with the rights of pg_read_all_stats.
HORIZON = """
    SELECT 'transaction', pid::text, extract(epoch FROM clock_timestamp() - xact_start)::float8, state,
           left(regexp_replace(query, '\\s+', ' ', 'g'), 60)
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND xact_start IS NOT NULL
      AND pid <> pg_backend_pid() AND datname = current_database() AND backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT 'prepared transaction', gid, extract(epoch FROM clock_timestamp() - prepared)::float8,
           owner::text, ''
    FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'replication slot', slot_name, NULL, CASE WHEN active THEN 'active' ELSE 'inactive' END,
           age(xmin)::text
    FROM pg_replication_slots WHERE xmin IS NOT NULL AND (NOT active OR age(xmin) > 1000000)
    ORDER BY 3 DESC NULLS LAST"""
