"""Ctrl-C in the middle of `tarry send --file`: it says up to where messages may be sent."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.support.ctrl_c import heeding_ctrl_c
from tests.support.topics import ends_of, make_topics

LINES = 50_000


def test_it_says_up_to_which_line_messages_may_be_sent(bootstrap: str, topic_name: str, tmp_path: Path) -> None:
    make_topics(AdminClient({"bootstrap.servers": bootstrap}), [topic_name])
    line = json.dumps({"target": "out", "value": "v", "key": "k", "delay": "1h"})
    (tmp_path / "many.jsonl").write_text(f"{line}\n" * LINES)
    command = [
        sys.executable,
        "-m",
        "tarry",
        "send",
        "--file",
        "many.jsonl",
        "--intake",
        topic_name,
        "--bootstrap-servers",
        bootstrap,
    ]
    with (
        heeding_ctrl_c(),
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline(), "no receipt"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    found = re.search(r"stopped at many\.jsonl:(\d+): ", err)
    assert found is not None, err
    sent = sum(ends_of(bootstrap, topic_name, committed=False).values())
    assert 1 + len(out.splitlines()) <= sent <= int(found[1]) < LINES
