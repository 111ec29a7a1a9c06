"""What every tier of tests shares: options on the command line, and brokers."""

pytest_plugins = [
    "tarry.testing.pytest_plugin",
    "tests.support.options",
    "tests.support.selection",
    "tests.support.brokers",
    "tests.support.docker",
    "tests.support.postgres",
    "tests.support.spark",
    "pytester",
]
