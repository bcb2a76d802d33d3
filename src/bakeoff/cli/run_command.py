"""`bakeoff run`."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff._lib.argument_parser import add_executor, add_patience, count
from bakeoff.cli.options import (
    ArgumentGroup,
    add_columns,
    add_json,
    add_output,
    add_scorer,
    add_trust,
    difference,
    dollars,
    new_parser,
    setting,
    shard,
    source_path,
    two_runs,
)

if TYPE_CHECKING:
    from bakeoff.app.options import RunOptions

_EXAMPLES = """\
  bakeoff run suite.json --model embedded
  bakeoff run suite.json --model ollama/qwen3:8b --model openai/gpt-4.1-mini --rollouts 5 --max-cost 2
  bakeoff run questions.csv --prompt short.txt --prompt 'Think first. {{question}}' --model ollama/qwen3:8b
  bakeoff run questions.csv --expected answer --model ollama/qwen3:8b --where "lang == 'de'"
  bakeoff run tasks/ --agent shell --agent codex --model ollama/qwen3:8b
  bakeoff run suite.json --model openai/gpt-4.1-mini --shard 0/8
  bakeoff run --resume latest"""
_CHANGE_THE_PLAN = {
    "prompts": "--prompt",
    "base_url": "--base-url",
    "agent_config": "--agents",
    "overrides": "--set",
    "expected": "--expected",
    "columns": "--map",
    "scorers": "--scorer",
}
_SELECT_A_PART = {  # of a run that is resumed, with --only
    "models": "--model",
    "agents": "--agent",
    "rollouts": "--rollouts",
    "categories": "--category",
    "tests": "--test",
    "tags": "--tag",
    "where": "--where",
    "failed_in": "--failed-in",
    "changed_in": "--changed-in",
    "sample": "--sample",
    "limit": "--limit",
}


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "run",
        "Run SOURCE: a JSON suite, a data set (CSV, TSV, JSONL, JSON, Parquet, hf://owner/name), a run\n"
        "file in TOML, a task in Markdown, a task folder, or a folder of those. With --resume only the\n"
        "missing trials are run, and SOURCE can be omitted.",
        examples=_EXAMPLES,
    )
    p.usage = "bakeoff run [SOURCE] [OPTION ...]"
    p.add_argument("source", nargs="?", type=source_path, metavar="SOURCE",
                   help="a .json, .csv, .jsonl, .parquet, .toml or .md file, or a folder")  # fmt: skip
    _add_who(p.add_argument_group("models and agents"))
    _add_what(p.add_argument_group("tasks"))
    _add_how(p.add_argument_group("execution"))
    _add_spending(p.add_argument_group("budget"))
    _add_tapes(p.add_argument_group("recorded answers"))
    return p


def _add_who(p: ArgumentGroup) -> None:
    p.add_argument("-m", "--model", action="append", default=[], dest="models", metavar="M",
                   help="provider/name, such as ollama/qwen3:8b; may be repeated")  # fmt: skip
    p.add_argument("--base-url", metavar="URL",
                   help="where the models are: http://host:port/v1, or a full URL")  # fmt: skip
    p.add_argument("-a", "--agent", action="append", default=[], dest="agents", metavar="A",
                   help="the agent that solves the tasks with the model (default: none, the bare model; "
                   "shell for tasks with files); may be repeated")  # fmt: skip
    p.add_argument("-p", "--prompt", action="append", default=[], dest="prompts", metavar="FILE|TEXT",
                   help="a prompt for the tasks, with their {{variables}}: a file, or the text itself; "
                   "may be repeated, to compare prompts with each model")  # fmt: skip
    p.add_argument("--agents", type=Path, metavar="PATH", dest="agent_config",
                   help="for an agent benchmark: an agent's TOML file, or a folder of them")  # fmt: skip
    p.add_argument("--env-file", type=Path, metavar="FILE",
                   help="API keys that are not set in the shell (default: .env, if it exists)")  # fmt: skip


def _add_what(p: ArgumentGroup) -> None:
    p.add_argument("--rollouts", type=count, metavar="N",
                   help="independent repetitions of each task (default: 1)")  # fmt: skip
    p.add_argument("--adaptive", nargs="?", const="pairs", choices=("pairs", "best"), metavar="best",
                   help="stop as soon as it is certain who of every two candidates is better; with `best`, "
                   "only which one is the best: losers are dropped on the way")  # fmt: skip
    p.add_argument("--looks", type=count, metavar="N",
                   help="of an adaptive run: look N times instead of after every task, such as 10")  # fmt: skip
    p.add_argument("--precision", type=difference, metavar="D",
                   help="also stop when their difference is known to within D, such as 0.05")  # fmt: skip
    p.add_argument("--category", action="append", default=[], dest="categories", metavar="C",
                   help="only this category; may be repeated")  # fmt: skip
    p.add_argument("--test", action="append", default=[], dest="tests", metavar="ID",
                   help="only this test (* and ? work); may be repeated")  # fmt: skip
    p.add_argument("--tag", action="append", default=[], dest="tags", metavar="T",
                   help="only tests with this tag; may be repeated")  # fmt: skip
    p.add_argument("--where", metavar="EXPR",
                   help="only tests whose columns match, such as \"lang == 'de' and level > 2\"")  # fmt: skip
    p.add_argument("--failed-in", metavar="RUN", help="only tests that failed in an earlier run")
    p.add_argument("--changed-in", type=two_runs, metavar="A,B",
                   help="only tests whose scores differ between two runs")  # fmt: skip
    p.add_argument("--sample", type=count, metavar="N",
                   help="N tests drawn by their ids: the same ones whenever they are there")  # fmt: skip
    p.add_argument(
        "--seed", type=int, default=0, metavar="S", help="draw another sample (default: 0)"
    )
    p.add_argument("--limit", type=count, metavar="N", help="run at most N tests")
    add_columns(p)
    add_scorer(p)
    add_trust(p)
    p.add_argument("--set", action="append", default=[], type=setting, dest="overrides",
                   metavar="KEY=VALUE",
                   help="override a key of the run file, such as limits.time_s=30")  # fmt: skip


def _add_how(p: ArgumentGroup) -> None:
    p.add_argument("--dry-run", action="store_true",
                   help="print the plan and an estimate of its cost, and run nothing")  # fmt: skip
    p.add_argument("--name", metavar="NAME",
                   help="a name for the run, by which every command finds it")  # fmt: skip
    p.add_argument("--resume", metavar="RUN",
                   help="resume a run: an id, the start of one, a name, a folder, or `latest`")  # fmt: skip
    p.add_argument("--only", action="store_true",
                   help="with --resume: run just the tests, models and rollouts that are named here, "
                   "and keep the rest of the run")  # fmt: skip
    p.add_argument(
        "--parallel",
        type=count,
        metavar="N",
        help="trials at once (default: 8; prompts: as many as the endpoint can take, up to 64)",
    )
    add_executor(p)
    p.add_argument("--shard", type=shard, metavar="I/N",
                   help="run one of N equal parts of the plan, counted from 0: 0/3, 1/3, 2/3; each on its "
                   "own machine, with its part of the budget and of the rate limits; then: bakeoff merge")  # fmt: skip
    p.add_argument("--sandbox", metavar="NAME",
                   help="where commands run: bubblewrap, docker, podman, local, modal "
                   "(default: the best isolating one that works here)")  # fmt: skip
    add_patience(p)
    add_output(p)
    add_json(p)


def _add_spending(p: ArgumentGroup) -> None:
    p.add_argument("--max-cost", type=dollars, metavar="USD",
                   help="stop before the run costs more, including roles, retries and failed attempts")  # fmt: skip
    p.add_argument("--max-tokens", type=count, metavar="N",
                   help="stop before it uses more tokens, input and output")  # fmt: skip
    p.add_argument("--prices", type=Path, metavar="FILE",
                   help="your own prices, in TOML; they override the built-in ones")  # fmt: skip


def _add_tapes(p: ArgumentGroup) -> None:
    p.add_argument("--record", type=Path, metavar="DIR",
                   help="save every exchange with a model in DIR")  # fmt: skip
    p.add_argument("--replay", type=Path, metavar="DIR",
                   help="take every answer from a recording; no request is sent")  # fmt: skip
    p.add_argument("--cache", type=Path, metavar="DIR",
                   help="reuse answers saved in DIR, and save new ones there")  # fmt: skip


def main(args: Namespace) -> int:
    """Run, or print what would be run."""
    from bakeoff.cli import running

    _refuse_mistakes(args)
    options = _options(args)
    if args.dry_run:
        return running.print_plan(options, as_json=args.as_json)
    return running.run(options, as_json=args.as_json, debug=args.debug)


def _options(args: Namespace) -> "RunOptions":
    """Return the options of the run that was typed; each is parsed into the field of its name."""
    from bakeoff.app.options import RunOptions

    for_the_command = {"dry_run", "as_json", "agent_config", "debug"}
    typed = {name: value for name, value in vars(args).items() if name not in for_the_command}
    typed["overrides"] = dict(args.overrides)
    typed["columns"] = dict(args.columns)
    if args.agent_config is not None:
        typed["overrides"]["benchmark.agent_config"] = str(args.agent_config.resolve())
    return RunOptions(**typed)


def _refuse_mistakes(args: Namespace) -> None:
    """Raise where options do not go together, in the words that were typed."""
    from bakeoff.core.errors import UsageError

    if args.source is None and args.resume:
        refused = _CHANGE_THE_PLAN if args.only else {**_SELECT_A_PART, **_CHANGE_THE_PLAN}
        if typed := [option for name, option in refused.items() if getattr(args, name)]:
            part = "" if args.only else "; to run a part of it, add --only"
            raise UsageError(
                f"{', '.join(typed)}: a run that is resumed without its source keeps its plan; to "
                f"change it, name the source: bakeoff run SOURCE --resume {args.resume} ...{part}"
            )
    if args.only and not args.resume:
        raise UsageError("--only runs a part of an earlier run: add --resume RUN")
    for name in args.agents:
        if _is_agent_file(name):
            raise UsageError(
                f"--agent {name}: this is a file or a folder, and --agent takes the name of an agent, "
                f"such as shell; for the agents of an agent benchmark write --agents {name}"
            )
    if args.agent_config is not None and args.source is not None:
        _check_agent_files(Path(args.source), str(args.agent_config))


def _is_agent_file(name: str) -> bool:
    """Whether what was given for an agent's name is a file or a folder of agents."""
    from bakeoff import registry

    known = registry.is_reference(name) or name in registry.names("agents")
    return not known and (name.endswith(".toml") or Path(name).is_dir())


def _check_agent_files(source: Path, given: str) -> None:
    """Raise where `--agents` was given for `--agent`, or for what is no agent benchmark."""
    from bakeoff import registry
    from bakeoff._lib.phrasing import near
    from bakeoff.core.errors import UsageError
    from bakeoff.formats.detect import Format, format_of

    if not source.exists():
        return  # whoever reads it says so
    meant = given if registry.is_reference(given) else near(given, registry.names("agents"))
    hint = f"did you mean --agent {meant}?" if meant else "the name of an agent goes to --agent"
    if format_of(source) is not Format.AGENT_BENCHMARK:
        raise UsageError(
            f"--agents {given}: it takes the agents' files of an agent benchmark, and {source} is not "
            f"one; {hint}"
        )
    if not Path(given).exists():
        hint = f'; an agent file with framework = "{meant}" runs that agent' if meant else ""
        raise UsageError(f"--agents {given}: there is no such file or folder of agents{hint}")
