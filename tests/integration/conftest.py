"""Fixtures that several tests of the Kafka edge need."""

from tests.support.stage import pytest_configure, stage

__all__ = ["pytest_configure", "stage"]
