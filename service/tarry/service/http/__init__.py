"""A minimal HTTP server, for health checks and metrics."""

from tarry.service.http.answer import Answer, Page
from tarry.service.http.server import HttpServer, listen

__all__ = ["Answer", "HttpServer", "Page", "listen"]
