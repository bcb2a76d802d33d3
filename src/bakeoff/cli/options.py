"""Options that several commands share."""

from pathlib import Path

import click

output_option = click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    show_default=True,
    help="Where runs are kept.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
run_argument = click.argument("run", default="latest")
