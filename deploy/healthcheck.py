"""The health check of the container: exit 0 while the worker or the service in it is alive.

One image runs both, so it takes the first port of the two that accepts a connection. SERVICE_PORT names the service's
where it is not 8000.
"""

from __future__ import annotations

import http.client
import os
import sys

PATIENCE = 4.0  # seconds
PAGES = (
    (int(os.environ.get("HOLDFAST_HEALTH_PORT") or 8081), "/live"),
    (int(os.environ.get("SERVICE_PORT") or 8000), "/v1/health/live"),
)


def status(port: int, page: str) -> int | None:
    """Return the status of a page, or None if nothing listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", page)
        return connection.getresponse().status
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException) as error:
        print(f"port {port}: {error}")
        return 0
    finally:
        connection.close()


def main() -> int:
    """Return the exit code."""
    for port, page in PAGES:
        if (found := status(port, page)) is not None:
            print(f"port {port}: {found}")
            return int(found != http.client.OK)
    print("nothing listens")
    return 1


if __name__ == "__main__":
    sys.exit(main())
