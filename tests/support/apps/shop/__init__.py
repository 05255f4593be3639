"""The one app of the tests' Django project."""
