"""Access to PostgreSQL. Only this package runs SQL, and SQL makes the decisions."""
