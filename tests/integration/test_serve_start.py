"""`tarry serve` while it waits for brokers at its start."""

import signal
import socket
from pathlib import Path

import pytest

from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_waits_for_a_broker_that_says_nothing_ends_at_once_when_asked(
    tmp_path: Path, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        brokers = f"127.0.0.1:{silent.getsockname()[1]}"
        serve = Serve(ServeConfig(brokers, "never.made", 1), tmp_path)
        try:
            serve.start()
            asked, _ = silent.accept()
            with asked:
                asked.settimeout(30)
                wait_until(lambda: bool(asked.recv(1)), "it asks the broker")
                [configured] = serve.events("configured")
                assert (configured["file"], configured["brokers"]) == (str(tmp_path / "serve.toml"), brokers)
                serve.signal(number)
                assert serve.wait_ended(3) == 128 + number
        finally:
            serve.close()
