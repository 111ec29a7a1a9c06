"""The configuration: one frozen tree of values. A process loads it once and passes the values on."""

from tarry.config.sources import DEFAULT_PATH, is_configured, load
from tarry.config.tree import Api, Config, Http, Intake, Kafka, Oidc, Overflow, Service, Wheel

__all__ = [
    "DEFAULT_PATH",
    "Api",
    "Config",
    "Http",
    "Intake",
    "Kafka",
    "Oidc",
    "Overflow",
    "Service",
    "Wheel",
    "is_configured",
    "load",
]
