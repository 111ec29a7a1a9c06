"""`tarry spark JOB …`: the jobs of the pipeline. PySpark is imported when a job runs, and by no other command."""

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
    help="Jobs for more than one process can hold: fill the service, apply what it delivers, audit it.",
)
for command in (schedule, apply, audit, archive, forecast, shift, cancel):
    app.command(command.__name__, help=help_of(command))(command)
