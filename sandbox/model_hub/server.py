"""Two listening ports, the hub's and its CDN's, with a thread for each connection."""

from __future__ import annotations

import socket
import struct
import threading
from http.server import ThreadingHTTPServer
from typing import Any

from sandbox.model_hub.api import HubExchange
from sandbox.model_hub.cdn import CdnExchange
from sandbox.model_hub.context import Context
from sandbox.model_hub.exchange import Exchange


class Port(ThreadingHTTPServer):
    """Raises OSError where the port is taken."""

    daemon_threads = True
    request_queue_size = 256

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; one that is to be reset gets no FIN before."""
        lingers, _ = struct.unpack("ii", request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        if lingers:
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that the client broke off is no news."""


def listen(context: Context, host: str, port: int, cdn_host: str) -> Port:
    """Start the CDN in the background and return the hub, which listens and is to be served. Raises OSError."""
    cdn = _port(CdnExchange, context, cdn_host, 0)
    context.cdn = f"http://{cdn_host}:{cdn.server_address[1]}"
    threading.Thread(target=cdn.serve_forever, daemon=True).start()
    return _port(HubExchange, context, host, port)


def _port(exchange: type[Exchange], context: Context, host: str, port: int) -> Port:
    return Port((host, port), type(exchange.__name__, (exchange,), {"context": context}))
