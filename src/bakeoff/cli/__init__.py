"""The command line: one module per command, each parses, calls the api and prints."""

import sys
from importlib import import_module

import click

COMMANDS = {
    "run": "Run a suite or a run file, or resume a run.",
    "list": "List runs, tasks, models, agents or scorers.",
    "show": "Show a run, or one trial of it.",
    "summarize": "Print the statistics of a run.",
    "eval": "Score the stored answers of a run again.",
    "init": "Write a run file and a suite to start from.",
    "validate": "Check a run file or a suite without running it.",
    "schema": "Print the JSON Schema of run files, for editors.",
}

EXIT_CODES = """\b
Exit codes:
  0    everything ran and was recorded
  1    an error; the message says what to do
  2    the command line itself is wrong
  3    it ran, but some trials faulted
  130  stopped with Ctrl-C; the resume command is printed
"""


class LazyCommands(click.Group):
    """Imports a command only when it is used: help must feel instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order a person meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command called *cmd_name*."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"bakeoff.cli.{cmd_name}_command").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from bakeoff._lib.suggest import did_you_mean

            ctx.fail(f"no command {args[0]!r}; {did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyCommands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="bakeoff", prog_name="bakeoff")
def app() -> None:
    """Which model or agent is better at your work? Measured, with error bars, resumable."""


def main() -> None:
    """Run the command line; a user's mistake is one message, never a traceback."""
    from bakeoff.core.errors import BakeoffError

    try:
        app(prog_name="bakeoff")
    except BakeoffError as error:
        click.echo(f"bakeoff: error: {error}", err=True)
        sys.exit(1)
