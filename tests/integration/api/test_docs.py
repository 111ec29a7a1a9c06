"""The examples of docs/http.md, as a reader copies them: curl, JavaScript and Go, against a real service."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.handle import Handle
from tarry.testing import LiveService
from tests.support.api import Api, config_beside, make_token

PAGE = Path(__file__).parents[3] / "docs" / "http.md"
WITHIN_S = 120


def examples(language: str) -> list[str]:
    """The blocks of the page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def guarded(service: LiveService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, str]]:
    """An API with tokens, and one that may send."""
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.json"
    token = make_token(tokens, "reader", "send", "act")
    with Api(config_beside(service, 2, tokens=str(tokens)), tmp_path_factory.mktemp("api")) as api:
        yield api, token


def run(command: list[str], guarded: tuple[Api, str], directory: Path) -> str:
    """Run an example; return what it prints."""
    api, token = guarded
    environment = {**os.environ, "TARRY_URL": api.url, "TOKEN": token, "GOFLAGS": "-mod=mod", "NO_PROXY": "127.0.0.1"}
    ended = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def for_target(text: str, service: LiveService) -> str:
    """The example, for a target that the test's service delivers to."""
    changed, count = re.subn(r'"(orders|invoices\.due)"', f'"{service.name}.orders"', text)
    assert count
    return changed


def test_the_commands_for_curl_send(
    guarded: tuple[Api, str], service: LiveService, orders: str, tmp_path: Path
) -> None:
    assert orders == f"{service.name}.orders"
    blocks = [block for block in examples("sh") if "curl" in block and "dry-run" not in block]
    assert len(blocks) == 2
    for block in blocks:
        # Without the lines before, which make a token and start the server.
        command = block[re.search(r"^(curl|printf)", block, re.MULTILINE).start() :]  # type: ignore[union-attr]
        command = for_target(command, service).replace("http://127.0.0.1:8090", guarded[0].url)
        answers = [json.loads(line) for line in run(["bash", "-c", command], guarded, tmp_path).splitlines()]
        assert Handle.parse(answers[0]["handle"]).topic == service.intake
        assert answers[-1].get("accepted", 2) == 2


def test_the_commands_for_a_bulk_act_begin_an_operation(
    guarded: tuple[Api, str], service: LiveService, orders: str, tmp_path: Path
) -> None:
    (block,) = [block for block in examples("sh") if "dry-run" in block]
    with guarded[0].client(guarded[1]) as client:
        sent = {"target": orders, "delay": "50m"}
        assert client.post("/v1/messages", json=sent).status_code == 202
        command = for_target(block, service).replace("http://127.0.0.1:8090", guarded[0].url)
        decoder, said = json.JSONDecoder(), run(["bash", "-c", command], guarded, tmp_path)
        found, end = decoder.raw_decode(said)
        begun, _ = decoder.raw_decode(said[end:].lstrip())
        assert found["count"] == begun["total"] >= 1
        assert client.get(f"/v1/operations/{begun['id']}").json()["reason"] == "wrong price"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_program_in_javascript_sends(
    guarded: tuple[Api, str], service: LiveService, orders: str, tmp_path: Path
) -> None:
    (text,) = examples("js")
    (tmp_path / "send.mjs").write_text(for_target(text, service), encoding="utf-8")
    handle = Handle.parse(run(["node", "send.mjs"], guarded, tmp_path).strip())
    assert handle.topic == service.intake
    with guarded[0].client(guarded[1]) as client:
        assert client.get(f"/v1/messages/{handle}").json()["target"] == orders


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
def test_the_program_in_go_sends(guarded: tuple[Api, str], service: LiveService, orders: str, tmp_path: Path) -> None:
    (text,) = examples("go")
    (tmp_path / "send.go").write_text(for_target(text, service), encoding="utf-8")
    handle = Handle.parse(run(["go", "run", "send.go"], guarded, tmp_path).strip())
    with guarded[0].client(guarded[1]) as client:
        assert client.get(f"/v1/messages/{handle}").json()["target"] == orders
