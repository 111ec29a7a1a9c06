"""Where the configuration comes from: `tarry.toml`, and over it the environment.

What is wrong is one line that names the field as the file does (`service.processes: ...`) and, where the
value came from there, the variable.

Environment: prefix `TARRY_`, `__` between levels, any scalar. An intake is named by its place
(`TARRY_INTAKE__0__PARTITIONS`), a property of librdkafka with `_` for its dots
(`TARRY_KAFKA__OPTIONS__SASL_PASSWORD`). A variable wins over the file. `TARRY_CONFIG` names the file where no
path is given, and `TARRY_TEST_...` belongs to the tests. Any other `TARRY_` variable is an error, so that a
misspelt one is noticed.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tarry.config.fields import FieldError, Location, flattened, option_name
from tarry.config.tree import Config
from tarry.errors import ConfigError

DEFAULT_PATH = Path("tarry.toml")
PREFIX = "TARRY_"
PATH_VARIABLE = "TARRY_CONFIG"
TEST_PREFIX = "TARRY_TEST_"
_ADDRESS_VARIABLE = "TARRY_KAFKA__BOOTSTRAP_SERVERS"

#: Part of a variable's name by level, for what it stands.
_Variables = dict[Location, str]


def is_configured(env: Mapping[str, str]) -> bool:
    """Whether there is a file, or a variable, that says where Kafka is."""
    return bool(env.get(PATH_VARIABLE)) or DEFAULT_PATH.exists() or _ADDRESS_VARIABLE in env


def load(path: Path | None, env: Mapping[str, str]) -> Config:
    """Read the configuration.

    Args:
        path: the file, which must be there; None: what `TARRY_CONFIG` names, else `./tarry.toml` where there
            is one, else the defaults.
        env: the environment.

    Returns:
        The whole tree, checked.

    Raises:
        ConfigError: one line that names what is wrong first, and how many things more are.
    """
    if path is None and env.get(PATH_VARIABLE):
        path = Path(env[PATH_VARIABLE])
    if path is None and DEFAULT_PATH.exists():
        path = DEFAULT_PATH
    data = {} if path is None else _read_file(path)
    variables = _lay_over(data, env)
    _check_root(data, variables)
    try:
        return Config(**data)
    except ValidationError as error:
        # Not chained: pydantic's own text shows inputs, and one may be a password.
        raise ConfigError(_one_line(error, variables)) from None


def _read_file(path: Path) -> dict[str, Any]:
    """The file as TOML reads it."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _lay_over(data: dict[str, Any], env: Mapping[str, str]) -> _Variables:
    """Put the environment's values over the file's.

    Returns:
        Which variable stands for which location.
    """
    variables: _Variables = {}
    for variable in env:
        is_ours = variable.startswith(PREFIX) and not variable.startswith(TEST_PREFIX)
        if is_ours and variable != PATH_VARIABLE:
            variables[_location(variable)] = variable
    # The default intake can be changed by a variable, too.
    if any(location[0] == "intake" for location in variables):
        data.setdefault("intake", [{"topic": Config().intakes[0].topic}])
    kafka = data.get("kafka")
    if isinstance(kafka, dict) and isinstance(kafka.get("options"), dict):
        kafka["options"] = flattened(kafka["options"])
    # By place in the list, so that a variable may add intake 10 after intake 9.
    for location in sorted(variables, key=lambda parts: [(isinstance(part, str), part) for part in parts]):
        _put(data, location, env[variables[location]], variables[location])
    return variables


def _location(variable: str) -> Location:
    """The field that a variable stands for."""
    parts = variable.removeprefix(PREFIX).lower().split("__")
    if parts[:2] == ["kafka", "options"] and len(parts) > 2:
        return ("kafka", "options", option_name("__".join(parts[2:])))
    return tuple(int(part) if part.isdecimal() and part.isascii() else part for part in parts)


def _put(data: dict[str, Any], location: Location, value: str, variable: str) -> None:
    """Set one field, making the tables on the way."""
    node: Any = data
    for depth, part in enumerate(location):
        is_last = depth == len(location) - 1
        if isinstance(node, dict) and isinstance(part, str):
            child = value if is_last else node.setdefault(part, [] if isinstance(location[depth + 1], int) else {})
            node[part] = child
        elif isinstance(node, list) and isinstance(part, int) and part <= len(node):
            if part == len(node):
                node.append({})
            child = value if is_last else node[part]
            node[part] = child
        else:
            raise ConfigError(f"{variable}: there is no such field")
        node = child


def _check_root(data: dict[str, Any], variables: _Variables) -> None:
    """Refuse unknown tables before the settings class sees them: it takes some names as its own arguments."""
    known = _known_fields(())
    for name in data:
        if name not in known:
            raise ConfigError(f"{_named((name,), variables)}: unknown (known: {', '.join(known)})")


def _one_line(error: ValidationError, variables: _Variables) -> str:
    """The first error as a line for people."""
    errors = error.errors(include_url=False, include_input=False)
    first = errors[0]
    location: Location = first["loc"]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, FieldError):
        location += cause.field
    text = str(cause) if isinstance(cause, ValueError) else first["msg"]
    match first["type"]:
        case "extra_forbidden":
            text = f"unknown field (known: {', '.join(_known_fields(location[:-1]))})"
        case "missing":
            text = "needed"
        case "model_type" | "model_attributes_type" | "dict_type":
            text = "should be a table"
        case "tuple_type" if location == ("intake",):
            text = "should be a list of tables: [[intake]]"
        case "string_pattern_mismatch":
            text = "should be letters, digits, dots, underscores and hyphens, at most 128 of them"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{_named(location, variables)}: {text.removeprefix('Input ')}{more}"


def _named(location: Location, variables: _Variables) -> str:
    """A field's name: `intake[0].topic`, and the variable that set it."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")
    setter = next((variables[place] for place in variables if place[: len(location)] == location), None)
    return f"{name} (set by {setter})" if setter else name


def _known_fields(location: Location) -> list[str]:
    """The fields of the table at a location, by their names in the file."""
    table: type[BaseModel] = Config
    for part in location:
        if isinstance(part, str):
            fields = {field.alias or name: field.annotation for name, field in table.model_fields.items()}
            annotation = fields[part]
            table = next(kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))
    return [field.alias or name for name, field in table.model_fields.items()]
