"""The dashboard: pages for people, rendered here, beside the API of /v1.

One page is one module with a `section`, one template in `templates/dashboard/` and one test, `test_dashboard_NAME.py`;
`app.SECTIONS` lists the modules in the order of the navigation. docs/guides/dashboard.md shows how to add one.
"""
