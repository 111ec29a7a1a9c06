"""Plugins for all tiers of tests: options on the command line, and brokers."""

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
