"""The service where everybody has to say who they are, and may do what docs/security.md grants and nothing else."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedProducer, OutcomeReader
from tarry.client.retry.core.names import DEAD, RETRY, STATE
from tarry.clock import SystemClock
from tarry.units import format_instant
from tests.e2e.conftest import Lab, laboratory, verdict
from tests.support.api import Api, ApiConfig
from tests.support.brokers import starting_brokers, wait_until
from tests.support.buckets import SMALL_WHEEL, wait_empty
from tests.support.grants import MAKER, SERVICE, Grant, documented
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import Said, tarry
from tests.support.retrying import RetryConfig, all_done, consuming, in_order_and_once, wait_done
from tests.support.retrying import send as send_tasks
from tests.support.secured import NAMES, Authority, SecuredBroker, User, config_of
from tests.support.topics import read_topic
from tests.support.workload import Sending

pytestmark = pytest.mark.broker

NEEDED: Final = documented(SERVICE, NAMES)
REAUTHENTICATE_S: Final = 20
"""How long a connection to the broker of the rotation lasts if the client does not show its password again."""

WITH_A_FILE: Final = """
import os, runpy
os.environ["TARRY_KAFKA__OPTIONS__SASL_PASSWORD_FILE"] = {path!r}
runpy.run_module("tarry", run_name="__main__", alter_sys=True)
"""
SECRET: Final = "not-to-be-seen-anywhere"  # noqa: S105 (of a broker that lives for these tests)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with starting_brokers() as start:
        yield SecuredBroker(start, tmp_path_factory.mktemp("secured"))


@pytest.fixture
def lab(secured: SecuredBroker, tmp_path: Path, unique_name: Callable[[str], str], seed: int) -> Iterator[Lab]:
    with laboratory(secured.broker.bootstrap_servers, tmp_path, unique_name("secured"), seed, secured) as made:
        yield made


@pytest.fixture(scope="module")
def made(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> SecuredBroker:
    """A broker where `tarry topics` has made the topics of one intake."""
    maker = secured.user("maker", [*NEEDED, *documented(MAKER, NAMES)])
    done = run(config_of(secured, maker), tmp_path_factory.mktemp("maker"), "topics")
    assert done.code == 0, done.err
    secured.admin.create_topics([NewTopic("bills", 1, 1)])["bills"].result(30)
    return secured


def run(config: ServeConfig, directory: Path, *words: str) -> Said:
    """Run a command as a user to its end."""
    (directory / "tarry.toml").write_text(config.toml(), encoding="utf-8")
    return tarry(*words, cwd=directory)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[ServeConfig], Serve]]:
    with ExitStack() as until_the_end:

        def start(config: ServeConfig) -> Serve:
            serve = Serve(config, tmp_path)
            until_the_end.callback(serve.close)
            return serve.start()

        yield start


@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_with_the_documented_rights_all_arrives_once_in_order_through_all_levels_and_a_crash(
    lab: Lab, group_protocol: str
) -> None:
    serve = lab.serve(group_protocol=group_protocol, **SMALL_WHEEL).start()
    serve.wait_serving()
    workload, reader, watch = lab.watched(delays_ms=(200, 20_000))
    with Sending(workload, 2_000, 10.0):
        watch.wait_served()
        serve.kill()
        serve.start().wait_serving()
    wait_empty(lab.bootstrap, lab.intake, workload, reader)
    report = verdict(workload, reader, [serve])
    report.assert_kept()


def test_a_service_whose_topics_exist_needs_no_right_to_create_any(
    made: SecuredBroker, serve: Callable[[ServeConfig], Serve], tmp_path: Path
) -> None:
    config = config_of(made, made.user("exactly", NEEDED))
    checked = run(config, tmp_path, "check")
    assert checked.code == 0, checked.out
    assert "FAIL" not in checked.out
    running = serve(config)
    running.wait_serving()
    assert running.stop() == 0
    assert running.events("kafka_warning") == []


@pytest.mark.some_of("grant", 3)
@pytest.mark.parametrize("grant", NEEDED, ids=str)
def test_a_right_that_is_missing_is_named(
    made: SecuredBroker, serve: Callable[[ServeConfig], Serve], tmp_path: Path, grant: Grant
) -> None:
    user = made.user(f"without {grant}", [other for other in NEEDED if other != grant])
    config = config_of(made, user)
    if grant.operation == AclOperation.DELETE and "wheel" not in grant.name:
        assert (
            f"{grant.name}: without DELETE the service cannot delete done records" in run(config, tmp_path, "check").out
        )
        return
    if grant.operation == AclOperation.WRITE and grant.name == "rights":
        running = serve(config)
        running.wait_serving()
        assert len(running.events("no_schedules")) == 1
        assert f"{grant.name}: without WRITE it accepts no schedules" in run(config, tmp_path, "check").out
        return
    if grant.operation == AclOperation.READ and grant.name.endswith(".control"):
        # It had the right before, so somebody may have been told that a target is paused.
        (directory := tmp_path / "before").mkdir()
        before = Serve(config_of(made, made.user("with all", NEEDED)), directory).start()
        before.wait_serving()
        assert before.stop() == 0
        running = serve(config)
        wait_until(lambda: bool(running.events("pausing_not_possible")), "it says why it serves nothing")
        assert not running.events("serving")
        notes = [line for line in run(config, tmp_path, "check").out.splitlines() if line.startswith("note")]
        assert any(grant.name in line for line in notes)
        return
    if grant.name.endswith((".status", ".control", ".operations")):
        # What nothing else may be done with is hidden; and what is hidden, or may not be looked at, is not used.
        running = serve(config)
        running.wait_serving()
        assert len(running.events(f"{grant.name.rpartition('.')[2]}_topic_unfit")) == 1
        notes = [line for line in run(config, tmp_path, "check").out.splitlines() if line.startswith("note")]
        assert any(grant.name in line for line in notes)
        return
    running = serve(config)
    if grant.kind == ResourceType.TRANSACTIONAL_ID:
        wait_until(lambda: bool(running.events("begin_anew")), "it says what holds it up")
        reason = running.events("begin_anew")[0]["reason"]
        assert reason.startswith(f"could not register {grant.name}")
        assert "Transactional Id authorization failed" in reason
    elif grant.name == "bills":
        running.wait_serving()
        send(made.broker.bootstrap_servers, "bills")
        wait_until(lambda: bool(running.events("target_away")), "it says what it waits for")
        assert running.events("target_away")[0]["target"] == "bills"
        assert "uthoriz" in running.events("target_away")[0]["reason"]
    else:
        assert running.wait_ended(30) == 1
        if grant.operation == AclOperation.WRITE and grant.name.endswith((".results", ".dead")):
            # What nothing else may be done with is hidden.
            assert f"this user may not create topic {grant.name}, or may not see it" in running.tail(1)
        else:
            missing = f"{grant.operation.name} on {grant.kind.name.lower()} {grant.name}"
            assert running.tail(1).startswith(f"tarry: rights are missing: {missing} (docs/security.md")


def send(bootstrap: str, target: str) -> None:
    with DelayedProducer(bootstrap, "rights") as producer:
        producer.send(target, b"v", delay=timedelta())


def test_senders_and_read_only_commands_need_the_documented_rights(
    made: SecuredBroker, serve: Callable[[ServeConfig], Serve], tmp_path: Path
) -> None:
    serve(config_of(made, made.user("service", NEEDED))).wait_serving()
    sender = made.user("sender", documented("What a sender may do", NAMES))
    waiting = made.user("waiting", documented("Rights to wait for outcomes", NAMES))
    with DelayedProducer(made.address, "rights", options=sender.options) as producer:
        receipt = producer.send("bills", b"v", delay=timedelta(milliseconds=100))
        with OutcomeReader(made.address, "rights", options=waiting.options) as outcomes:
            assert outcomes.await_outcome(receipt, timeout_s=30)["outcome"] == "fired"
    inspector = config_of(made, made.user("inspector", documented("Rights to inspect", NAMES)))
    pending = run(inspector, tmp_path, "pending")
    assert (pending.code, pending.err) == (0, "")
    status = run(inspector, tmp_path, "status", str(receipt.handle), "--json")
    assert (status.code, status.err) == (0, "")
    assert json.loads(status.out)["state"] == "fired"


def test_redriving_dead_letters_needs_the_documented_rights(made: SecuredBroker, tmp_path: Path) -> None:
    dead, to = "tasks.billing.dead", "tasks"
    for topic, future in made.admin.create_topics([NewTopic(name, 1, 1) for name in (dead, to)]).items():
        assert future.result(30) is None, topic
    plain = made.broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": plain})
    producer.produce(dead, b"task", b"key", headers=[("tarry-error", b"out-of-attempts")])
    assert producer.flush(30) == 0
    names = {**NAMES, "<dead>": [dead], "<to>": [to]}
    user = made.user("redriver", documented("Rights to redrive dead letters", names))
    for sent in (1, 0):
        said = run(config_of(made, user), tmp_path, "redrive", dead, "--to", to)
        assert said == (0, f"sent {sent} to {to}\n", "")
    assert [record.value() for record in read_topic(plain, to)] == [b"task"]


def test_who_pauses_and_resumes_needs_the_documented_rights(made: SecuredBroker, tmp_path: Path) -> None:
    config = config_of(made, made.user("pauser", documented("Rights to pause", NAMES)))
    for words in (("pause", "bills", "--reason", "a test"), ("resume", "bills")):
        said = run(config, tmp_path, *words, "--wait", "0s")
        assert (said.code, said.err) == (0, "")


def test_a_retrying_consumer_needs_what_is_documented(
    secured: SecuredBroker, serve: Callable[[ServeConfig], Serve], tmp_path: Path
) -> None:
    plain, retry = secured.broker.bootstrap_servers, "orders.billing.retry"
    names = {"<intake>": ["retries"], "<level>": ["1"], "<target>": [retry], "<group>": ["retries"]}
    service = secured.user("retries", [*documented(SERVICE, names), *documented(MAKER, names)])
    settings = {"max_delay": "3s", "targets": [retry]}
    config = config_of(secured, service, intake_settings=settings)
    serve(replace(config, intake="retries", group="retries")).wait_serving()
    own = [NewTopic(f"orders.billing{suffix}", 1, 1) for suffix in (RETRY, DEAD)]
    state = NewTopic(f"orders.billing{STATE}", 1, 1, config={"cleanup.policy": "compact"})
    for future in secured.admin.create_topics([*own, state, NewTopic("orders", 1, 1), NewTopic("paid", 1, 1)]).values():
        future.result(30)
    names = {"<topic>": ["orders"], "<name>": ["billing"], "<intake>": ["retries"]}
    rights = documented("What a retrying consumer may do", names)
    user = secured.user("billing", [*rights, Grant(ResourceType.TOPIC, "paid", False, AclOperation.WRITE)])
    retrying = RetryConfig(
        secured.address,
        "orders",
        "billing",
        "retries",
        "paid",
        longest_ms=3_000,
        missing_after_ms=100,
        options=user.options,
    )
    with consuming(retrying, tmp_path, 1) as [consumer]:
        sent = send_tasks(plain, "orders", [(b"key", number % 3) for number in range(20)])
        wait_done(plain, "paid", 20, 60.0)
        assert consumer.stop() == 0
        assert consumer.events("kafka_warning") == 0, consumer.tail()
        assert consumer.events("trim_failed") == 0, consumer.tail()
    in_order_and_once(sent, all_done(plain, "paid"))


@pytest.mark.exhaustive
def test_a_secret_is_nowhere_to_be_seen(
    made: SecuredBroker, serve: Callable[[ServeConfig], Serve], tmp_path: Path
) -> None:
    user = made.user("secretive", NEEDED, SECRET)
    config = config_of(made, user)
    said = []
    running = serve(replace(config, options={**user.options, "debug": "all"}))
    running.wait_serving()
    said += [running.get(path)[1] for path in ("/livez", "/readyz", "/metrics")]
    assert running.stop() == 0
    said.append(running.tail(1_000_000))
    wrong = replace(config, options={**user.options, "sasl.password": SECRET + "!"})
    misspelt = replace(config, options={**user.options, "sasl.pasword": SECRET})
    for command in ("check", "serve", "pending"):
        for one in (wrong, misspelt):
            done = run(one, tmp_path, "--debug", command)
            assert done.code in {1, 2}, (command, done)
            said += [done.out, done.err]
    assert any("sasl" in text for text in said), "nothing was said of what is secret at all"
    assert [line for text in said for line in text.splitlines() if SECRET in line] == []


API: Final = documented("What the API may do", NAMES)


@pytest.fixture(scope="module")
def served_to_the_api(made: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A service for whoever asks by HTTP. It keeps the only partition: tests of other services stand before."""
    serve = Serve(config_of(made, made.user("serves the api", NEEDED)), tmp_path_factory.mktemp("serves"))
    try:
        serve.start().wait_serving()
        # There is a dead letter that the API may not read: without any it would have nothing to ask for.
        producer = Producer({"bootstrap.servers": made.broker.bootstrap_servers})
        producer.produce("rights", b"v", headers={"tarry-target": b"bills", "tarry-delay-ms": b"soon"})
        producer.flush(30)
        wait_until(lambda: bool(read_topic(made.broker.bootstrap_servers, "rights.dead")), "it is dead")
        yield made
    finally:
        serve.close()


@contextmanager
def api_as(made: SecuredBroker, user: User, directory: Path) -> Iterator[httpx.Client]:
    config = config_of(made, user)
    settings = {field.name: getattr(config, field.name) for field in fields(config)}
    with Api(ApiConfig(**settings, api={"port": 0}), directory) as api, api.client() as client:
        yield client


def test_the_api_can_do_all_with_the_documented_rights(served_to_the_api: SecuredBroker, tmp_path: Path) -> None:
    made = served_to_the_api
    message: dict[str, Any] = {"target": "bills", "key": "k", "value": "v"}
    with api_as(made, made.user("api", API), tmp_path) as client:

        def ask(method: str, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
            answer = client.request(method, path, json=body or None)
            assert answer.status_code == status, (method, path, answer.text)
            found: dict[str, Any] = answer.json()
            return found

        assert ask("POST", "/v1/messages", **message, delay="100ms", wait="20s")["outcome"]["outcome"] == "fired"
        moved = ask("POST", "/v1/messages", 202, **message, delay="2900ms")["handle"]
        assert ask("GET", f"/v1/messages/{moved}")["state"] in {"pending", "waiting"}
        assert ask("POST", f"/v1/messages/{moved}:deliver-now", 202)["twice"] in {"no", "maybe", "yes"}
        assert ask("PUT", "/v1/timers?key=k&name=n", 202, target="bills", delay="2900ms")["handle"]
        assert ask("DELETE", "/v1/timers?key=k&name=n&wait=20s")["state"] == "cancelled"
        assert ask("PUT", "/v1/targets/bills/pause", reason="a test", wait="20s")["confirmed"]
        expires_ms = SystemClock().now_ms() + 3_000
        ask("POST", "/v1/messages", 202, **message, delay="100ms", expires_at=format_instant(expires_ms))
        wait_until(lambda: SystemClock().now_ms() > expires_ms, "it expires")
        assert not ask("PUT", "/v1/targets/bills/resume", reason="a test", wait="20s")["paused"]
        wait_until(lambda: ask("POST", "/v1/dead:dismiss", code="expired")["count"] > 0, "it is dead")
        for path in ("dead:redrive", "dead:dismiss", "pending:cancel"):
            ask("POST", "/v1/messages", 202, **message, delay="2900ms")
            token = ask("POST", f"/v1/{path}", target="bills")["token"]
            row = ask("POST", f"/v1/{path}", 202, token=token, reason="a test")
            where = f"/v1/operations/{row['id']}"
            wait_until(lambda where=where: ask("GET", where)["state"] == "done", "it is done")  # type: ignore[misc]
        assert {"pause", "resume", "redrive", "dismiss", "cancel"} <= {
            one["act"] for one in ask("GET", "/v1/audit")["acts"]
        }
        for path in ("health", "intakes", "targets", "partitions", "pending", "pending/messages", "schedules", "dead"):
            ask("GET", f"/v1/{path}")
        ask("GET", "/v1/retries")
        with client.stream("GET", "/v1/events") as stream:
            assert stream.status_code == 200


@pytest.mark.some_of("grant", 3)
@pytest.mark.parametrize("grant", API, ids=str)
def test_a_right_that_the_api_has_not_costs_what_needs_it_and_nothing_else(
    served_to_the_api: SecuredBroker, tmp_path: Path, grant: Grant
) -> None:
    made = served_to_the_api
    user = made.user(f"api without {grant}", [other for other in API if other != grant])
    with api_as(made, user, tmp_path) as client:
        sent = client.post("/v1/messages", json={"target": "bills", "delay": "100ms"})
        may_send = grant.operation != AclOperation.WRITE or grant.name != "rights"
        assert sent.status_code == (202 if may_send else 503), sent.text
        statuses = {}
        for path in ("health", "targets", "partitions", "pending", "pending/messages", "schedules", "dead", "retries"):
            answer = client.get(f"/v1/{path}")
            statuses[path] = answer.status_code
            assert answer.status_code in {200, 503}, (path, answer.text)
            if answer.status_code == 503:
                # An operator must not take it for an outage.
                said = answer.json()
                assert said["code"] == "kafka-refuses" or "uthorization failed" in said["detail"], answer.text
                assert grant.name in said["detail"] or "uthorization failed" in said["detail"], answer.text
        assert 200 in statuses.values()


@pytest.mark.some_of("wrong")
@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_a_refused_login_is_reported_in_one_line_with_its_reason(
    secured: SecuredBroker, tmp_path: Path, wrong: str
) -> None:
    user = secured.user("guest")
    if wrong == "password":
        user = user._replace(password=SECRET)
    else:
        (tmp_path / "other").mkdir()
        user = user._replace(authority=Authority(tmp_path / "other").certificate)
    done = run(config_of(secured, user), tmp_path, "check")
    assert done.code == 1
    [line] = [line for line in done.out.splitlines() if line.startswith("FAIL")]
    assert {"password": "uthentication failed", "authority": "certificate verify failed"}[wrong] in line
    assert done.err == ""


@pytest.mark.exhaustive
def test_a_password_that_changes_in_its_file_reaches_living_clients_and_those_of_a_process_that_starts_later(
    tmp_path: Path,
) -> None:
    """The broker asks all connections for the password once more, some time after it has changed."""
    with starting_brokers() as start:
        secured = SecuredBroker(start, tmp_path, {"connections.max.reauth.ms": str(REAUTHENTICATE_S * 1_000)})
        user = secured.user("tarry", [*NEEDED, *documented(MAKER, NAMES)], "first")
        secured.admin.create_topics([NewTopic("bills", 1, 1)])["bills"].result(30)
        password = tmp_path / "password"
        password.write_text("first\n", encoding="utf-8")
        (tmp_path / "with_a_file.py").write_text(WITH_A_FILE.format(path=str(password)), encoding="utf-8")
        options = {name: value for name, value in user.options.items() if name != "sasl.password"}
        config = replace(config_of(secured, user), options=options)
        serve = Serve(config, tmp_path, command=("with_a_file", "serve", "--config"))
        plain = secured.broker.bootstrap_servers

        def deliver(values: int) -> None:
            """Send messages one after another, some through a level, and wait for all."""
            before = len(read_topic(plain, "bills"))
            with DelayedProducer(plain, "rights") as producer:
                for number in range(values):
                    producer.send("bills", b"v", delay=timedelta(milliseconds=2_500 if number % 2 else 100))
            wait_until(lambda: len(read_topic(plain, "bills")) == before + values, "all arrive", 60)

        try:
            serve.start().wait_serving()
            deliver(4)
            worker = serve.workers[0]
            password.write_text("second\n", encoding="utf-8")
            secured.user("tarry", (), "second")
            changed = time.monotonic()
            wait_until(lambda: bool(serve.events("credentials_changed")), "the file is read", 10)
            while time.monotonic() < changed + 1.5 * REAUTHENTICATE_S:
                deliver(4)
            assert [one for one in serve.events("librdkafka") if "uthentication" in str(one)] == []
            assert serve.workers[0] == worker
            assert [one["properties"] for one in serve.events("credentials_changed")] == [["sasl.password"]]
            os.kill(worker, signal.SIGKILL)
            serve.wait_serving(2)
            deliver(2)
            assert "second" not in serve.tail(10_000)
            password.unlink()
            wait_until(lambda: bool(serve.events("credentials_unreadable")), "a file that is gone is said", 10)
            deliver(2)
            assert serve.stop() == 0
        finally:
            serve.close()
