"""`tarry api`: HTTP for senders that do not speak Kafka, and the console; and the tokens that it accepts."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tarry import logs
from tarry.api.access.tokens import TokenFile
from tarry.cli.inspect import configured
from tarry.cli.options import ConfigOption, JsonOption, ServersOption, positive_duration_ms, value_of
from tarry.clock import SystemClock
from tarry.errors import TarryError, UsageError
from tarry.units import format_instant

app = typer.Typer(
    name="api", rich_markup_mode=None, short_help="Serve HTTP for senders that do not speak Kafka, and the console."
)
token = typer.Typer(name="token", rich_markup_mode=None, help="Make, list and revoke the tokens of `tarry api`.")
app.add_typer(token)

TokensOption = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="F", help="The file of the tokens. Default: api.tokens as configured."),
]


@app.callback(invoke_without_command=True)
def serve(context: typer.Context, config: ConfigOption = None, bootstrap_servers: ServersOption = None) -> None:
    """Serve HTTP for senders that do not speak Kafka, and the console.

    Without COMMAND it serves until SIGTERM or Ctrl-C. Without api.tokens and api.oidc, api.host must be a loopback
    address, and everybody who can reach it may do everything.

    Example: tarry api --config tarry.toml

    Example: tarry api token create billing --scope send:invoices.* --expires 90d
    """
    if context.invoked_subcommand is not None:
        return
    # Other commands, and `--help` of all of them, work without the extra `http`.
    from tarry.api.app import run  # noqa: PLC0415
    from tarry.api.parts import Parts  # noqa: PLC0415

    settings, cluster = configured(config, bootstrap_servers)
    on_event = logs.speaker(logs.configure(context.obj.log_level if context.obj else "info"))
    try:
        run(Parts(settings, cluster, SystemClock(), on_event))
    except TarryError as error:
        on_event("failed", error=str(error))  # whoever reads the log as JSON lines sees the end, too
        raise


@token.command("create")
def create(
    name: Annotated[
        str, typer.Argument(help="A unique name for the token; the audit log shows it.", show_default=False)
    ],
    scope: Annotated[
        list[str],
        typer.Option(
            metavar="SCOPE[:GLOB,...]",
            help="What it is for: send, look, look-keys, look-values or act; for all targets, or for those of the "
            "globs. Repeat for more.",
            show_default=False,
        ),
    ],
    expires: Annotated[
        str, typer.Option(metavar="90d", help="How long it is valid; `never` for one without an end.")
    ] = "90d",
    tokens: TokensOption = None,
    config: ConfigOption = None,
) -> None:
    """Make a token, and print it: only its hash is kept, so it cannot be shown again.

    Running servers accept it within a second.

    Example: tarry api token create billing --scope send:invoices.* --scope look:invoices.* --expires 90d
    """
    now_ms = SystemClock().now_ms()
    ends_ms = None if expires == "never" else now_ms + value_of("--expires", positive_duration_ms, expires)
    typer.echo(_file(tokens, config).create(name, tuple(scope), now_ms, ends_ms))


@token.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="The name of the token.", show_default=False)],
    tokens: TokensOption = None,
    config: ConfigOption = None,
) -> None:
    """Revoke a token. Running servers refuse it within a second, and end its streams within a minute.

    Example: tarry api token revoke billing
    """
    _file(tokens, config).revoke(name)


@token.command("list")
def list_(tokens: TokensOption = None, as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """List the tokens: name, scopes, and when each ends.

    Example: tarry api token list
    """
    now_ms = SystemClock().now_ms()
    for one in _file(tokens, config).tokens():
        fields = {name: value for name, value in one.fields().items() if name != "hash"}
        ends = "never ends" if one.expires_ms is None else f"until {format_instant(one.expires_ms)}"
        text = f"{one.name}  {' '.join(one.grants)}  {'expired' if one.is_over(now_ms) else ends}"
        typer.echo(json.dumps(fields) if as_json else text)


def _file(tokens: Path | None, config: Path | None) -> TokenFile:
    settings, _ = configured(config, None)
    path = tokens or (Path(settings.api.tokens) if settings.api.tokens else None)
    if path is None:
        raise UsageError("there is no file of tokens: set api.tokens, or give --tokens F")
    return TokenFile(path)
