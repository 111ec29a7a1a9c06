"""`tarry spark JOB …`: the Spark jobs. Only a running job imports PySpark."""

import typer

from tarry.cli.help import help_of
from tarry.cli.spark.apply import apply
from tarry.cli.spark.archive import archive
from tarry.cli.spark.audit import audit
from tarry.cli.spark.bulk import cancel, shift
from tarry.cli.spark.forecast import forecast
from tarry.cli.spark.schedule import schedule

app = typer.Typer(
    name="spark",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Spark jobs for data that exceeds one process: schedule messages, apply change logs, audit deliveries.",
)
for command in (schedule, apply, audit, archive, forecast, shift, cancel):
    app.command(command.__name__, help=help_of(command))(command)
