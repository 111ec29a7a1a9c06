"""A minimal HTTP server, for health checks and metrics."""

from tarry.service.http.answer import Page, Response
from tarry.service.http.server import HttpServer, listen

__all__ = ["HttpServer", "Page", "Response", "listen"]
