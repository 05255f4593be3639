"""The service: jobs over HTTP. `app(hf)` is an ASGI application, for `holdfast serve` or mounted in another one."""

from holdfast.web.app import app

__all__ = ["app"]
