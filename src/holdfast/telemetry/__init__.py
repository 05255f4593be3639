"""What people watch: log lines now."""
