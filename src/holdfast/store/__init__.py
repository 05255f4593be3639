"""The only package that speaks to PostgreSQL. SQL decides; this carries."""
