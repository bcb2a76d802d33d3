"""`bakeoff run`."""

import sys
from pathlib import Path

import click

from bakeoff.cli.options import json_option, output_option


def _overrides(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> dict[str, str]:
    pairs = {}
    for text in value:
        key, sign, setting = text.partition("=")
        if not sign or not key:
            raise click.BadParameter(f"{text!r}: write KEY=VALUE, such as limits.time_s=30")
        pairs[key.strip()] = setting.strip()
    return pairs


@click.command("run")
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.option("--model", "-m", "models", multiple=True, help="provider/name; may be repeated.")
@click.option("--base-url", help="Where the models are: http://host:port/v1, or a full URL.")
@click.option("--rollouts", type=click.IntRange(min=1), help="Repetitions of each task.")
@click.option("--parallel", type=click.IntRange(min=1), help="Trials at once.")
@click.option("--category", "categories", multiple=True, help="Only this category; repeatable.")
@click.option("--test", "tests", multiple=True, help="Only this test id (* and ? work).")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many tests.")
@click.option("--resume", help="Run what is missing of this run: an id, a folder, or `latest`.")
@output_option
@click.option("--set", "overrides", multiple=True, callback=_overrides, metavar="KEY=VALUE",
              help="Override a key of the run file, such as limits.time_s=30.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@json_option
def command(source: Path | None, dry_run: bool, as_json: bool, **options: object) -> None:
    """Run SOURCE: a JSON suite, or a run file in TOML.

    With --resume, only what is missing is run; SOURCE may then be left out.
    """
    from bakeoff.cli import running

    if dry_run:
        running.print_plan(source, options, as_json=as_json)
        return
    sys.exit(running.run(source, options, as_json=as_json))
