"""Health check of the image: `probe.py /livez` exits 0 if the relay in this container answers 200 there."""

import http.client
import os
import sys


def main() -> int:
    """Ask once; the answer's body says why not, and goes to whoever reads the health log."""
    host, port = os.environ.get("RELAY_HTTP_HOST", "127.0.0.1"), os.environ.get("RELAY_HTTP_PORT", "")
    if not port.isdigit() or port == "0":
        print(f"RELAY_HTTP_PORT is {port!r}: nothing to ask. Set a port, or switch the health check off.")
        return 1
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    connection = http.client.HTTPConnection(local, int(port), timeout=4)
    try:
        connection.request("GET", sys.argv[1])
        answer = connection.getresponse()
        print(answer.status, answer.read(2000).decode(errors="replace").strip())
    except OSError as error:
        print(f"http://{local}:{port}{sys.argv[1]} does not answer: {error}")
        return 1
    finally:
        connection.close()
    return 0 if answer.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
