"""A very small HTTP server, for health and metrics."""

from tarry.http.answer import Answer, Page
from tarry.http.server import HttpServer, listen

__all__ = ["Answer", "HttpServer", "Page", "listen"]
