"""The configuration: one frozen tree of values. A process loads it once and passes the values on."""

from tarry.config.sources import DEFAULT_PATH, is_configured, load
from tarry.config.tree import Config, Http, Intake, Kafka, Overflow, Service, Wheel

__all__ = ["DEFAULT_PATH", "Config", "Http", "Intake", "Kafka", "Overflow", "Service", "Wheel", "is_configured", "load"]
