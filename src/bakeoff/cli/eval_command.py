"""`bakeoff eval`."""

from argparse import ArgumentParser, Namespace

from bakeoff.cli.options import (
    add_columns,
    add_json,
    add_output,
    add_run,
    add_scorer,
    add_trust,
    new_parser,
    source_path,
)


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "eval",
        "Score the stored answers of a run again, without asking any candidate.\n"
        "The new scores are saved together at the end; if you stop it before, nothing changes.",
    )
    add_run(p)
    p.add_argument("--source", type=source_path, metavar="FILE",
                   help="take targets and scorers from this suite, data set or run file "
                   "(default: those of the run)")  # fmt: skip
    add_columns(p)
    add_scorer(p)
    add_trust(p)
    p.add_argument("--sandbox", metavar="NAME",
                   help="where workspace tasks are graded (default: where they were run)")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Score again and print what came of it."""
    from bakeoff.app.options import RunOptions
    from bakeoff.cli import running

    options = RunOptions(
        args.source,
        output=args.output,
        expected=args.expected,
        columns=dict(args.columns),
        scorers=args.scorers,
        sandbox=args.sandbox,
        trust=args.trust,
        allow_env=args.allow_env,
    )
    return running.score_again(args.run, options, as_json=args.as_json, debug=args.debug)
