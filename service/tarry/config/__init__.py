"""The configuration: one frozen tree, built once, whose values are passed down."""

from tarry.config.sources import load
from tarry.config.tree import Config, Http, Intake, Kafka, Overflow, Service, Wheel

__all__ = ["Config", "Http", "Intake", "Kafka", "Overflow", "Service", "Wheel", "load"]
