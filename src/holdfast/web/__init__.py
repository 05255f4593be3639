"""The service: jobs over HTTP. `app(hf)` is an ASGI application, for `holdfast serve` or mounted in another one."""

from holdfast.errors import ConfigurationError

try:
    import prometheus_client  # noqa: F401
    import starlette  # noqa: F401
except ImportError as error:
    raise ConfigurationError(f"the service needs: pip install 'holdfast-jobs[web]' ({error.name} is missing)") from None

from holdfast.web.app import app

__all__ = ["app"]
