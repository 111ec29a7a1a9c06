"""`tarry serve` as a process, as users of the package test with it too."""

from tarry.testing.serve import HAND_OVER_S, SERVE, Serve, ServeConfig

__all__ = ["HAND_OVER_S", "SERVE", "Serve", "ServeConfig"]
