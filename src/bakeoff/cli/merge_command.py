"""`bakeoff merge`."""

from argparse import ArgumentParser, Namespace

from bakeoff.cli.options import add_json, add_output, new_parser

_EXAMPLES = """\
  bakeoff merge runs/*
  bakeoff merge shard-0/* shard-1/* shard-2/* --name nightly"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "merge",
        "Put the runs of all shards of a plan (bakeoff run --shard I/N) together as one new run, and\n"
        "print its results. It is a run like any other; the runs of the shards stay as they are.",
        examples=_EXAMPLES,
    )
    p.add_argument(
        "runs", nargs="+", metavar="RUN",
        help="the runs of the shards, in any order: ids, names or folders",
    )  # fmt: skip
    p.add_argument("--name", metavar="NAME",
                   help="a name for the merged run, by which every command finds it")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Merge, and print the results."""
    from bakeoff.cli import running

    return running.merge(args.runs, output=args.output, name=args.name, as_json=args.as_json)
