"""`bakeoff run`."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bakeoff.cli.options import add_json, add_output, count, dollars, new_parser, setting


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "run",
        "Run SOURCE: a JSON suite, a run file in TOML, a task folder, or a folder of those.\n"
        "With --resume only what is missing is run, and SOURCE may be left out.",
    )
    p.add_argument(
        "source",
        nargs="?",
        type=Path,
        metavar="SOURCE",
        help="a .json, .toml or .md file, or a folder",
    )
    p.add_argument("-m", "--model", action="append", default=[], dest="models", metavar="M",
                   help="provider/name; may be repeated")  # fmt: skip
    p.add_argument("-a", "--agent", action="append", default=[], dest="agents", metavar="A",
                   help="who solves the tasks (default: the bare model); may be repeated")  # fmt: skip
    p.add_argument("--agents", type=Path, metavar="PATH", dest="agent_config",
                   help="of an agent benchmark: an agent's TOML, or a folder of them")  # fmt: skip
    p.add_argument("--sandbox", metavar="NAME",
                   help="where commands run: bubblewrap, docker, podman, local, modal")  # fmt: skip
    p.add_argument("--base-url", metavar="URL",
                   help="where the models are: http://host:port/v1, or a full URL")  # fmt: skip
    p.add_argument("--rollouts", type=count, metavar="N", help="repetitions of each task")
    p.add_argument("--parallel", type=count, metavar="N", help="trials at once")
    p.add_argument("--category", action="append", default=[], dest="categories", metavar="C",
                   help="only this category; may be repeated")  # fmt: skip
    p.add_argument("--test", action="append", default=[], dest="tests", metavar="ID",
                   help="only this test (* and ? work); may be repeated")  # fmt: skip
    p.add_argument("--limit", type=count, metavar="N", help="at most so many tests")
    p.add_argument("--resume", metavar="RUN", help="an id, a folder, or `latest`")
    add_output(p)
    p.add_argument("--set", action="append", default=[], type=setting, dest="overrides",
                   metavar="KEY=VALUE",
                   help="override a key of the run file, such as limits.time_s=30")  # fmt: skip
    p.add_argument("--record", type=Path, metavar="DIR",
                   help="keep every exchange with a model in DIR")  # fmt: skip
    p.add_argument("--replay", type=Path, metavar="DIR",
                   help="take every answer from a recording; nobody is asked")  # fmt: skip
    p.add_argument("--cache", type=Path, metavar="DIR",
                   help="reuse answers kept in DIR, and keep new ones there")  # fmt: skip
    p.add_argument("--env-file", type=Path, metavar="FILE",
                   help="variables the shell does not set (default: .env, if there is one)")  # fmt: skip
    p.add_argument("--max-cost", type=dollars, metavar="USD",
                   help="stop before the run costs more, with roles, retries and failed attempts")  # fmt: skip
    p.add_argument("--max-tokens", type=count, metavar="N",
                   help="stop before it takes more tokens, in and out")  # fmt: skip
    p.add_argument("--prices", type=Path, metavar="FILE",
                   help="your own prices, in TOML; they win over the packaged ones")  # fmt: skip
    p.add_argument("--dry-run", action="store_true",
                   help="print the plan and what it may cost, and stop")  # fmt: skip
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Run, or print what would be run."""
    from bakeoff.cli import running

    aside = {"source", "dry_run", "as_json", "agent_config"}
    options = {k: v for k, v in vars(args).items() if k not in aside}
    options["overrides"] = dict(args.overrides)
    if args.agent_config is not None:
        options["overrides"]["benchmark.agent_config"] = str(args.agent_config.resolve())
    if args.dry_run:
        return running.print_plan(args.source, options, as_json=args.as_json)
    return running.run(args.source, options, as_json=args.as_json)
