"""`tarry serve` as a process: the same fixture that the package offers to its users."""

from tarry.testing.serve import HAND_OVER_S, SERVE, Serve, ServeConfig

__all__ = ["HAND_OVER_S", "SERVE", "Serve", "ServeConfig"]
