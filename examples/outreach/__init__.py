"""Outreach: tenants' messages, sent once each, by as many identical workers as there is work for."""
