"""Ordered retry: what becomes of a message whose handler failed, and of those of its key behind it; pure."""
