"""Plugins for all tiers of tests: options on the command line, and brokers."""

import gc

from hypothesis import settings

# All tests that were collected stay in memory, and most objects of a simulated world die without the collector: with
# its usual threshold it takes a tenth of the processor time.
gc.set_threshold(20_000, 20, 20)

# A test never asserts speed, and one example may take long on a busy machine.
settings.register_profile("tarry", deadline=None)
settings.load_profile("tarry")

pytest_plugins = [
    "tarry.testing.pytest_plugin",
    "tests.support.compiled",
    "tests.support.options",
    "tests.support.selection",
    "tests.support.brokers",
    "tests.support.browser",
    "tests.support.docker",
    "tests.support.postgres",
    "tests.support.spark",
    "pytester",
]
