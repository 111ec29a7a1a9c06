"""What every tier of tests shares: options on the command line, and brokers."""

pytest_plugins = ["tests.support.options", "tests.support.brokers"]
