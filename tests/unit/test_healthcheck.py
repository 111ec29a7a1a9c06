"""The image's health check, against pages of our own HTTP server's kind."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

import healthcheck


class Pages(BaseHTTPRequestHandler):
    """livez is well, readyz is not."""

    def do_GET(self) -> None:
        self.send_response({"/livez": 200, "/readyz": 503}.get(self.path, 404))
        self.end_headers()
        self.wfile.write(b"so it is\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        """Nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TARRY_CONFIG", "TARRY_HTTP__HOST", "TARRY_HTTP__PORT"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_word_it_asks_where_the_service_listens_by_default() -> None:
    assert healthcheck.where({}) == ("127.0.0.1", 8080)


def test_the_file_is_heard_and_the_environment_wins(tmp_path: Path) -> None:
    Path("tarry.toml").write_text('[http]\nhost = "0.0.0.0"\nport = 9000\n', encoding="utf-8")
    other = tmp_path / "other.toml"
    other.write_text("[http]\nport = 9001\n", encoding="utf-8")
    assert healthcheck.where({}) == ("127.0.0.1", 9000)
    assert healthcheck.where({"TARRY_CONFIG": str(other)}) == ("127.0.0.1", 9001)
    assert healthcheck.where({"TARRY_HTTP__HOST": "::", "TARRY_HTTP__PORT": "9002"}) == ("::1", 9002)
    assert healthcheck.where({"TARRY_HTTP__HOST": "10.0.0.7"}) == ("10.0.0.7", 9000)


def test_its_exit_code_is_the_page_s(
    port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TARRY_HTTP__PORT", str(port))
    assert healthcheck.main("livez") == 0
    assert healthcheck.main("readyz") == 1
    assert capsys.readouterr().out == "so it is\nso it is\n"


def test_without_an_answer_the_health_check_fails_in_one_line(
    port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TARRY_CONFIG", "absent.toml")
    assert healthcheck.main("livez") == 1
    Path("tarry.toml").write_text("[http\n", encoding="utf-8")
    monkeypatch.delenv("TARRY_CONFIG")
    assert healthcheck.main("livez") == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "absent.toml" in said[0]
