"""No models. Django sends post_migrate, which sets the schema up, only to apps that have this module."""
