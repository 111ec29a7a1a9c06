"""The sources of the configuration: the file `tarry.toml`, and environment variables, which override the file.

An error is one line. It names the field as the file does (`service.processes: ...`), and the variable if the value came
from a variable.

A variable sets one scalar. Its name has the prefix `TARRY_`, and `__` between the levels. An intake has its index in
the name (`TARRY_INTAKE__0__PARTITIONS`); a property of librdkafka has `_` instead of dots
(`TARRY_KAFKA__OPTIONS__SASL_PASSWORD`). With `_FILE` at its end, it names a file that has the value, such as a mounted
secret (`TARRY_KAFKA__OPTIONS__SASL_PASSWORD_FILE`). `TARRY_CONFIG` names the file if no path is given, and
`TARRY_TEST_...` is for the tests. Any other `TARRY_` variable is an error, so that a misspelt name is noticed.
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
FILE_SUFFIX = "_FILE"
# librdkafka's properties that name a file themselves.
_OPTIONS_OF_FILES = (
    "TARRY_KAFKA__OPTIONS__SASL_OAUTHBEARER_ASSERTION_FILE",
    "TARRY_KAFKA__OPTIONS__SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE",
    "TARRY_KAFKA__OPTIONS__SASL_OAUTHBEARER_ASSERTION_JWT_TEMPLATE_FILE",
)
_ADDRESS_VARIABLE = "TARRY_KAFKA__BOOTSTRAP_SERVERS"

#: The location of a field, and the name of the variable that set it.
_Variables = dict[Location, str]


def is_configured(env: Mapping[str, str]) -> bool:
    """Return whether there is a configuration file, or a variable with the address of Kafka."""
    return bool(env.get(PATH_VARIABLE)) or DEFAULT_PATH.exists() or _ADDRESS_VARIABLE in env


def file_of(path: Path | None, env: Mapping[str, str]) -> Path | None:
    """Return the file that `load` reads; None if it would read none."""
    if path is None and env.get(PATH_VARIABLE):
        return Path(env[PATH_VARIABLE])
    return DEFAULT_PATH if path is None and DEFAULT_PATH.exists() else path


def load(path: Path | None, env: Mapping[str, str]) -> Config:
    """Read the configuration.

    Args:
        path: the file, which must exist. None: the file that `TARRY_CONFIG` names, else `./tarry.toml` if it exists,
            else the defaults.
        env: the environment.

    Returns:
        The whole tree, validated.

    Raises:
        ConfigError: the configuration is wrong; one line describes the first error and gives the number of others.
    """
    path = file_of(path, env)
    data = {} if path is None else _read_file(path)
    variables = _lay_over(data, env)
    _check_root(data, variables)
    try:
        return Config(**data)
    except ValidationError as error:
        # Not chained: pydantic's text shows the inputs, and one of them may be a password.
        raise ConfigError(_one_line(error, variables)) from None


def _read_file(path: Path) -> dict[str, Any]:
    """Parse the file as TOML."""
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
    """Override the values of the file with those of the environment.

    Returns:
        The variable that set each location.
    """
    variables: _Variables = {}
    for variable in env:
        is_ours = variable.startswith(PREFIX) and not variable.startswith(TEST_PREFIX)
        if is_ours and variable != PATH_VARIABLE:
            location = _location(variable)
            if location in variables:
                raise ConfigError(f"{variable}: {variables[location]} sets the same field")
            variables[location] = variable
    # A variable can also change the default intake, which the file does not have.
    if any(location[0] == "intake" for location in variables):
        data.setdefault("intake", [{"topic": Config().intakes[0].topic}])
    kafka = data.get("kafka")
    if isinstance(kafka, dict) and isinstance(kafka.get("options"), dict):
        kafka["options"] = flattened(kafka["options"])
    # Sort the indexes as numbers, so that a variable can add intake 10 after intake 9.
    for location in sorted(variables, key=lambda parts: [(isinstance(part, str), part) for part in parts]):
        _put(data, location, _value_of(variables[location], env), variables[location])
    return variables


def _location(variable: str) -> Location:
    """Return the location of the field that a variable sets."""
    name = variable.removesuffix(FILE_SUFFIX) if _names_a_file(variable) else variable
    parts = name.removeprefix(PREFIX).lower().split("__")
    if parts[:2] == ["kafka", "options"] and len(parts) > 2:
        return ("kafka", "options", option_name("__".join(parts[2:])))
    return tuple(int(part) if part.isdecimal() and part.isascii() else part for part in parts)


def _names_a_file(variable: str) -> bool:
    return variable.endswith(FILE_SUFFIX) and variable not in _OPTIONS_OF_FILES


def _value_of(variable: str, env: Mapping[str, str]) -> str:
    """Return the value that a variable has, or that the file has that it names; without the newline at its end."""
    if not _names_a_file(variable):
        return env[variable]
    return text_of(Path(env[variable]), variable)


def text_of(path: Path, variable: str) -> str:
    """Return the value that a file has, without the newline at its end.

    Args:
        path: the file.
        variable: what it is the value of, for the error.

    Raises:
        ConfigError: it cannot be read, or is not text in UTF-8; one line says so, without the content.
    """
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ConfigError(f"{variable}: {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{variable}: {path}: not text in UTF-8") from None


def option_files(env: Mapping[str, str]) -> dict[str, Path]:
    """Return the properties of librdkafka that variables take from files, each with its file."""
    prefix = f"{PREFIX}KAFKA__OPTIONS__"
    ours = [variable for variable in env if variable.startswith(prefix) and _names_a_file(variable)]
    return {str(_location(variable)[-1]): Path(env[variable]) for variable in ours}


def _put(data: dict[str, Any], location: Location, value: str, variable: str) -> None:
    """Set one field, and create the tables above it."""
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
    """Refuse unknown tables before the settings class gets them: it would take some names as its own arguments."""
    known = _known_fields(())
    for name in data:
        if name not in known:
            raise ConfigError(f"{_named((name,), variables)}: unknown (known: {', '.join(known)})")


def _one_line(error: ValidationError, variables: _Variables) -> str:
    """Return the first error as one line for people."""
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
            text = "missing"
        case "model_type" | "model_attributes_type" | "dict_type":
            text = "should be a table"
        case "tuple_type" if location == ("intake",):
            text = "should be a list of tables: [[intake]]"
        case "string_pattern_mismatch":
            text = "should be letters, digits, dots, underscores and hyphens, at most 128 characters"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{_named(location, variables)}: {text.removeprefix('Input ')}{more}"


def _named(location: Location, variables: _Variables) -> str:
    """Return a field's name, such as `intake[0].topic`, with the variable that set it."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")
    setter = next((variables[place] for place in variables if place[: len(location)] == location), None)
    return f"{name} (set by {setter})" if setter else name


def _known_fields(location: Location) -> list[str]:
    """Return the fields of the table at a location, by their names in the file."""
    table: type[BaseModel] = Config
    for part in location:
        if isinstance(part, str):
            fields = {field.alias or name: field.annotation for name, field in table.model_fields.items()}
            annotation = fields[part]
            table = next(kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))
    return [field.alias or name for name, field in table.model_fields.items()]
