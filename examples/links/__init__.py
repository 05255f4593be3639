"""The link enrichment worker ("Worker Job Processing (Locked)"): bookmarks are imported, links enriched once."""
