"""The configuration from file and environment."""

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from tarry.config import Config, load
from tarry.errors import ConfigError

_CONTRACT = """
[kafka]
bootstrap_servers = "127.0.0.1:9092"
options = { }

[service]
group = "tarry"
group_protocol = "classic"
instance = ""
processes = 1
memory_budget = "1GiB"
transaction_interval_ms = 5
transaction_max_messages = 5000

[wheel]
tick_ms = 1
size = 512

[overflow]
from = "60s"
width = "20s"
size = 16

[[intake]]
topic = "tarry.delayed"
partitions = 4
replication = 1
max_delay = "30d"
targets = ["*"]
keep = "7d"

[[intake]]
topic = "orders.retry-30s"
delay = "30s"
target = "orders"

[http]
host = "127.0.0.1"
port = 8080
"""


def _load(tmp_path: Path, text: str = "", **env: str) -> Config:
    path = tmp_path / "tarry.toml"
    path.write_text(text)
    return load(path, env)


def _refusal(tmp_path: Path, text: str = "", **env: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        _load(tmp_path, text, **env)
    line = str(refusal.value)
    assert "\n" not in line
    assert refusal.value.__cause__ is None
    return line


def test_without_file_and_environment_there_is_one_intake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARRY_SERVICE__GROUP", "of-this-process")
    config = load(None, {})
    assert [intake.topic for intake in config.intakes] == ["tarry.delayed"]
    assert config.service.group == "tarry"
    assert config.kafka.properties() == {"bootstrap.servers": "127.0.0.1:9092"}


def test_the_documented_file_is_the_defaults_and_a_fixed_delay(tmp_path: Path) -> None:
    config = _load(tmp_path, _CONTRACT)
    defaults = Config()
    assert config.model_copy(update={"intakes": defaults.intakes}) == defaults
    assert config.overflow.from_ms == 60_000
    assert config.overflow.width_ms == 20_000
    assert config.service.memory_budget_bytes == 2**30
    first, second = config.intakes
    assert (first.max_delay_ms, first.keep_ms, first.targets) == (2_592_000_000, 604_800_000, ("*",))
    assert (first.is_fixed, first.longest_delay_ms) == (False, 2_592_000_000)
    assert (second.is_fixed, second.longest_delay_ms, second.target) == (True, 30_000, "orders")


def test_the_file_in_the_working_directory_is_found_and_a_variable_may_name_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tarry.toml").write_text("[http]\nport = 1\n")
    Path("other.toml").write_text("[http]\nport = 2\n")
    assert load(None, {}).http.port == 1
    assert load(None, {"TARRY_CONFIG": "other.toml"}).http.port == 2
    assert load(Path("tarry.toml"), {"TARRY_CONFIG": "other.toml"}).http.port == 1


def test_every_scalar_can_be_set_by_the_environment_which_wins(tmp_path: Path) -> None:
    config = _load(
        tmp_path,
        _CONTRACT,
        TARRY_KAFKA__BOOTSTRAP_SERVERS="a:1, b:2",
        TARRY_KAFKA__OPTIONS__SASL_PASSWORD="secret",  # noqa: S106
        TARRY_KAFKA__OPTIONS__log_level="3",
        TARRY_SERVICE__MEMORY_BUDGET="64MiB",
        TARRY_OVERFLOW__FROM="90s",
        TARRY_INTAKE__0__PARTITIONS="8",
        TARRY_INTAKE__0__TARGETS__0="orders.*",
        TARRY_INTAKE__1__DELAY="10s",
        TARRY_INTAKE__2__TOPIC="slow",
        TARRY_HTTP__PORT="0",
        TARRY_TEST_BOOTSTRAP_SERVERS="not ours",
        PATH="not ours either",
    )
    assert config.kafka.properties() == {
        "bootstrap.servers": "a:1, b:2",
        "sasl.password": "secret",
        "log_level": "3",
    }
    assert config.service.memory_budget_bytes == 64 * 2**20
    assert config.overflow.from_ms == 90_000
    assert [intake.topic for intake in config.intakes] == ["tarry.delayed", "orders.retry-30s", "slow"]
    assert [intake.partitions for intake in config.intakes] == [8, 4, 4]
    assert config.intakes[0].targets == ("orders.*",)
    assert config.intakes[1].delay_ms == 10_000
    assert config.http.port == 0


def test_the_default_intake_can_be_changed_by_the_environment_alone(tmp_path: Path) -> None:
    (intake,) = _load(tmp_path, TARRY_INTAKE__0__MAX_DELAY="1d").intakes
    assert (intake.topic, intake.max_delay_ms) == ("tarry.delayed", 86_400_000)


def test_intakes_by_the_environment_are_put_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    env = {f"TARRY_INTAKE__{number}__TOPIC": f"intake-{number}" for number in range(11)}
    assert [intake.topic for intake in _load(tmp_path, **env).intakes] == [f"intake-{number}" for number in range(11)]


@pytest.mark.parametrize(
    "text", ['"sasl.password" = "hunter2"', 'sasl.password = "hunter2"', 'sasl = { password = "hunter2" }']
)
def test_secrets_reach_librdkafka_and_no_text(tmp_path: Path, text: str) -> None:
    config = _load(tmp_path, f"[kafka.options]\n{text}\n")
    assert config.kafka.properties()["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(config)
    assert "hunter2" not in str(config.model_dump())
    assert "hunter2" not in config.model_dump_json()


def test_a_secret_of_digits_is_no_less_secret(tmp_path: Path) -> None:
    config = _load(tmp_path, '[kafka.options]\n"sasl.password" = 470011\n')
    assert config.kafka.properties()["sasl.password"] == "470011"
    assert "470011" not in repr(config)


def test_a_variable_wins_over_a_dotted_option_of_the_file(tmp_path: Path) -> None:
    config = _load(tmp_path, '[kafka.options]\nssl.key.location = "a"\n', TARRY_KAFKA__OPTIONS__SSL_KEY_LOCATION="b")
    assert config.kafka.properties()["ssl.key.location"] == "b"


def test_options_may_be_text_numbers_and_booleans(tmp_path: Path) -> None:
    text = '[kafka.options]\n"client.id" = "x"\n"socket.keepalive.enable" = true\n"socket.timeout.ms" = 5\n'
    assert _load(tmp_path, text).kafka.properties() == {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "x",
        "socket.keepalive.enable": "true",
        "socket.timeout.ms": 5,
    }


@pytest.mark.parametrize(
    "name",
    [
        "acks",
        "enable.auto.commit",
        "enable.idempotence",
        "group.id",
        "isolation.level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "partitioner",
        "request.required.acks",
        "transactional.id",
    ],
)
def test_an_option_that_would_break_a_promise_is_refused_by_name(tmp_path: Path, name: str) -> None:
    assert _refusal(tmp_path, f'[kafka.options]\n"{name}" = "1"\n').startswith(f"kafka.options.{name}: may not be set")


def test_options_of_the_classic_protocol_are_refused_with_the_other(tmp_path: Path) -> None:
    text = '[service]\ngroup_protocol = "{}"\n[kafka.options]\n"session.timeout.ms" = 9000\n'
    assert _load(tmp_path, text.format("classic")).kafka.options == {"session.timeout.ms": 9000}
    assert _refusal(tmp_path, text.format("consumer")).startswith("kafka.options.session.timeout.ms: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense = 1", "nonsense: unknown"),
        ('_env_file = "x"', "_env_file: unknown"),
        (
            "[service]\ntransaction_interval = 5",
            "service.transaction_interval: unknown field (known: group, ",
        ),
        ("[overflow]\nfrom_ms = 5", "overflow.from_ms: unknown field (known: from, width, size)"),
        ('[[intake]]\ntopic = "a"\nretention = "1d"', "intake[0].retention: unknown field"),
        ("service = 1", "service: should be a table"),
        ("kafka.options = 1", "kafka.options: should be a table"),
        ("kafka.options = { a = [1] }", "kafka.options.a: should be a string"),
        ("intake = 1", "intake: should be a list of tables"),
        ("intake = []", "intake: needs at least one intake"),
        ("[[intake]]\npartitions = 1", "intake[0].topic: missing"),
        ('[kafka]\nbootstrap_servers = ""', "kafka.bootstrap_servers: should be HOST:PORT"),
        ('[kafka]\nbootstrap_servers = "a b"', "kafka.bootstrap_servers: should be HOST:PORT"),
        ("[kafka]\nbootstrap_servers = 1", "kafka.bootstrap_servers: should be a valid string"),
        ("[service]\ntransaction_interval_ms = 0", "service.transaction_interval_ms: should be greater"),
        ("[service]\ntransaction_max_messages = true", "service.transaction_max_messages: should be a whole"),
        ("[service]\nprocesses = 1.0", "service.processes: should be a whole number"),
        ('[service]\ngroup_protocol = "new"', "service.group_protocol: should be 'classic' or 'consumer'"),
        ('[service]\ngroup = ""', "service.group: should be letters, digits"),
        (f'[service]\ninstance = "{"x" * 129}"', "service.instance: should be letters, digits"),
        ('[service]\ngroup = "a b"', "service.group: should be letters, digits"),
        ("[service]\nmemory_budget = 1000", "service.memory_budget: a size is text with a unit"),
        ('[service]\nmemory_budget = "1KiB"', "service.memory_budget: 1KiB is not between 16MiB and"),
        ("[wheel]\ntick_ms = 0", "wheel.tick_ms: should be greater"),
        ("[wheel]\ntick_ms = 3", "wheel.tick_ms: should divide overflow.width"),
        ("[wheel]\nsize = 1", "wheel.size: should be greater than or equal to 2"),
        ("[overflow]\nsize = 1", "overflow.size: should be greater than or equal to 2"),
        ("[overflow]\nwidth = 20", "overflow.width: a duration is text with a unit"),
        ('[overflow]\nwidth = "20"', "overflow.width: a duration needs a unit"),
        ('[overflow]\nfrom = "10s"', "overflow.from: must be at least overflow.width (20s)"),
        ('[[intake]]\ntopic = "a"\ndelay = "1s"', "intake[0].target: missing"),
        ('[[intake]]\ntopic = "a"\ntarget = "b"', "intake[0].delay: missing"),
        (
            '[[intake]]\ntopic = "a"\ntarget = "b"\ndelay = "1s"\ntargets = ["b"]',
            "intake[0].targets: may not",
        ),
        (
            '[[intake]]\ntopic = "a"\ntarget = "b"\ndelay = "1s"\nmax_delay = "1d"',
            "intake[0].max_delay: may not",
        ),
        ('[[intake]]\ntopic = "a"\ntarget = "a"\ndelay = "1s"', "intake[0].target: leads back to a"),
        (
            '[[intake]]\ntopic = "a"\ntarget = "a.dead"\ndelay = "1s"',
            "intake[0].target: is an internal topic of intake a",
        ),
        (
            '[[intake]]\ntopic = "a"\ntarget = "__x"\ndelay = "1s"',
            "intake[0].target: names that start with __",
        ),
        ('[[intake]]\ntopic = "a"\ntargets = []', "intake[0].targets: needs at least one glob"),
        ('[[intake]]\ntopic = "a"\ntargets = ["b", "%"]', "intake[0].targets[1]: not a glob"),
        ('[[intake]]\ntopic = "a b"', "intake[0].topic: not a legal topic name"),
        (f'[[intake]]\ntopic = "{"x" * 241}"', "intake[0].topic: must have at most 240"),
        ('[[intake]]\ntopic = "a"\n[[intake]]\ntopic = "a"', "intake[1].topic: the same name as intake[0]"),
        (
            '[[intake]]\ntopic = "a.b"\n[[intake]]\ntopic = "a_b"',
            "intake[1].topic: the same name as intake[0]",
        ),
        (
            '[[intake]]\ntopic = "a"\n[[intake]]\ntopic = "a.wheel-1"',
            "intake[1].topic: is the name of an internal topic of intake a",
        ),
        ('[[intake]]\ntopic = "a"\nkeep = "-1s"', "intake[0].keep: a duration must not be negative"),
        ('[http]\nhost = ""', "http.host: String should have at least 1"),
        ("[http]\nport = 65536", "http.port: should be less than or equal to 65535"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_field(tmp_path: Path, text: str, says: str) -> None:
    assert _refusal(tmp_path, text).startswith(says)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("TARRY_FOO", "1", "foo (set by TARRY_FOO): unknown"),
        ("TARRY_", "1", " (set by TARRY_): unknown"),
        ("TARRY_CONFIGS", "1", "configs (set by TARRY_CONFIGS): unknown"),
        ("TARRY_SERVICE__FOO", "1", "service.foo (set by TARRY_SERVICE__FOO): unknown field"),
        (
            "TARRY_SERVICE__PROCESSES",
            "x",
            "service.processes (set by TARRY_SERVICE__PROCESSES): should be a valid",
        ),
        ("TARRY_SERVICE", "x", "service (set by TARRY_SERVICE): should be a table"),
        ("TARRY_HTTP__PORT__X", "1", "http.port (set by TARRY_HTTP__PORT__X): "),
        (
            "TARRY_KAFKA__OPTIONS__ACKS",
            "1",
            "kafka.options.acks (set by TARRY_KAFKA__OPTIONS__ACKS): may not",
        ),
        ("TARRY_INTAKE__5__TOPIC", "a", "TARRY_INTAKE__5__TOPIC: there is no such field"),
        ("TARRY_INTAKE__TOPIC", "a", "TARRY_INTAKE__TOPIC: there is no such field"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, value: str, says: str) -> None:
    assert _refusal(tmp_path, **{variable: value}).startswith(says)


def test_further_errors_are_counted(tmp_path: Path) -> None:
    assert _refusal(tmp_path, "[wheel]\nsize = 1\ntick_ms = 0\n").endswith("(and 1 more)")


def test_a_password_never_shows_in_an_error(tmp_path: Path) -> None:
    line = _refusal(tmp_path, '[kafka]\nfoo = 1\n[kafka.options]\nsasl.password = "hunter2"\nacks = "hunter2"\n')
    assert "hunter2" not in line


def test_a_fixed_target_may_be_another_intake_where_the_way_ends(tmp_path: Path) -> None:
    chain = '[[intake]]\ntopic = "{}"\ndelay = "1s"\ntarget = "{}"\n'
    assert len(_load(tmp_path, chain.format("a", "b") + chain.format("b", "c")).intakes) == 2
    assert "leads back to a" in _refusal(tmp_path, chain.format("a", "b") + chain.format("b", "a"))
    assert "needs headers" in _refusal(tmp_path, chain.format("a", "b") + '[[intake]]\ntopic = "b"\n')


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(ConfigError, match=r"missing\.toml: no such file$"):
        load(missing, {})
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path, {})
    for content in (b"a =", b"\xff\xfe"):
        missing.write_bytes(content)
        with pytest.raises(ConfigError, match="not TOML") as refusal:
            load(missing, {})
        assert "\n" not in str(refusal.value)


def test_the_tree_is_frozen_and_goes_to_another_process(tmp_path: Path) -> None:
    config = _load(tmp_path, _CONTRACT)
    with pytest.raises(ValidationError, match="frozen"):
        config.service.processes = 2  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301
