"""Ordered retry: decides about failed messages and the later messages of their keys; pure."""
