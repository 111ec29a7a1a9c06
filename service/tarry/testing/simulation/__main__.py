"""`python -m tarry.testing.simulation`: random runs, seed after seed, until a promise is broken."""

from typing import Annotated

import typer

from tarry.testing.simulation.scenarios import ALL_KINDS, by_chance

app = typer.Typer(add_completion=False)


@app.command()
def hunt(
    seed: Annotated[int, typer.Option(help="Seed of the first run. Each further run has the next seed.")] = 1,
    runs: Annotated[int, typer.Option(min=1, help="Number of runs.")] = 100,
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="K", help="A kind of disturbance; repeat for more kinds. Default: all kinds."),
    ] = None,
    pauses: Annotated[bool, typer.Option("--pauses", help="Also pause and resume targets.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the result, no progress.")] = False,
) -> None:
    """Run the service on a simulated cluster with random faults. Exit with 1 at the first broken promise.

    \b
    python -m tarry.testing.simulation --runs 1000
    python -m tarry.testing.simulation --seed 4711 --runs 1     # repeat one
    python -m tarry.testing.simulation --kind leader --kind crash
    """  # noqa: D301 - \b tells typer to keep the line breaks
    judged = 0
    kinds = ALL_KINDS if kind is None else frozenset(kind)
    if unknown := sorted(kinds - ALL_KINDS):
        raise typer.BadParameter(f"no such kind: {unknown[0]}; there are {', '.join(sorted(ALL_KINDS))}")
    for number in range(runs):
        try:
            outcome = by_chance(seed + number, kinds=kinds, pauses=pauses)
        except Exception as error:
            typer.echo(f"seed {seed + number}\nan error {type(error).__name__}: {error}")
            raise
        judged += outcome.report.judged
        if not outcome.report.is_clean:
            typer.echo(str(outcome))
            raise typer.Exit(1)
        if not quiet and (number + 1) % 10 == 0:
            typer.echo(f"{number + 1} of {runs} runs, nothing wrong", err=True)
    typer.echo(f"{runs} runs from seed {seed}, nothing wrong; order judged for {judged} messages")


if __name__ == "__main__":
    app()
