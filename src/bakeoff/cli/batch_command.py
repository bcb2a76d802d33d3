"""`batch_runner.py`, `bakeoff batch`, and `bakeoff run TASK.md`: one task, many models."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

from bakeoff._lib.argument_parser import add_executor, add_patience, count, seconds
from bakeoff.cli.options import add_json, new_parser, options_of

HOME = Path("benchmark")
CONFIG = "models_config.yaml"


def parser(home: Path = HOME, program: str = "bakeoff batch") -> ArgumentParser:
    """Return what the command takes; *home* is the folder of the config and of the results."""
    p = new_parser(
        "batch",
        "Run one task with many models, and compare them: a live table while it goes, then reports\n"
        "as HTML, JSON and CSV. All models of the Ollama that is running, and the enabled ones of\n"
        f"{home / CONFIG}.",
    )
    p.prog = program
    p.set_defaults(home=home, program=["bakeoff", "batch"], refuse=p.error)
    p.add_argument("source", nargs="?", type=Path, metavar="TASK",
                   help="the task: a Markdown file, or a task folder")  # fmt: skip
    p.add_argument("--task", type=Path, metavar="TASK", help="the same")
    p.add_argument("--models", metavar="MODELS",
                   help='names or categories between commas, or "all" (default: all)')  # fmt: skip
    p.add_argument("--output", type=Path, metavar="OUTPUT",
                   help=f"where batches are kept (default: {home / 'results'})")  # fmt: skip
    p.add_argument("--parallel", action="store_true", help="run models at the same time")
    p.add_argument("--max-parallel", type=count, metavar="N",
                   help="at most N of them (default: max_parallel of the config, else 4)")  # fmt: skip
    p.add_argument("--timeout", type=_seconds, metavar="TIMEOUT",
                   help="time limit for each model, in seconds (default: 1800)")  # fmt: skip
    p.add_argument("--resume", metavar="RESUME",
                   help="the id of a batch to resume, or its folder")  # fmt: skip
    p.add_argument("-a", "--agent", metavar="AGENT",
                   help="the agent that works with the model: shell, codex, continue, ... (default: shell)")  # fmt: skip
    p.add_argument("--rollouts", type=count, metavar="N",
                   help="how often each model does the task (default: 1)")  # fmt: skip
    p.add_argument("--config", type=Path, metavar="FILE",
                   help=f"models, categories and settings (default: {home / CONFIG}, if it is there)")  # fmt: skip
    p.add_argument("--judge", metavar="MODEL",
                   help="the model that judges by the success criteria if the task has no check")  # fmt: skip
    p.add_argument("--instructor", metavar="MODEL",
                   help="the model that replies for the user when an agent asks or stops too early")  # fmt: skip
    p.add_argument("--interventions", type=count, metavar="N",
                   help="how often the instructor may reply (default: 3, if there is one)")  # fmt: skip
    p.add_argument("--sandbox", metavar="NAME",
                   help="where commands run: bubblewrap, docker, podman, local, modal")  # fmt: skip
    p.add_argument("--env-file", type=Path, metavar="FILE",
                   help="variables that are not set in the shell (default: .env, if it exists)")  # fmt: skip
    add_executor(p)
    add_patience(p)
    p.add_argument("--dry-run", action="store_true",
                   help="print the plan and an estimate of its cost, and run nothing")  # fmt: skip
    add_json(p)
    return p


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds") from error
    if not 0 < seconds < float("inf"):
        raise ArgumentTypeError(f"must be more than 0, not {text}")
    return seconds


def from_run(argv: Sequence[str]) -> list[str]:
    """Return the words of a `bakeoff run` that is a batch as `bakeoff batch` takes them.

    An option that only a run with named models has is a mistake, which is told in terms of `run`.
    """
    from bakeoff.cli import run_command

    of_run = run_command.parser()
    no_batch_has = options_of(of_run) - options_of(parser())
    words: list[str] = []
    for number, word in enumerate(argv):
        option = word.partition("=")[0]
        if option in no_batch_has:
            of_run.error(
                f"{option} needs --model: without it, a task in Markdown is run as a batch, with every "
                "model that is there, and a batch has no such option: name the models, or leave it out"
            )
        if option == "--parallel" and (most := _number_behind(argv[number:])):
            words += ["--parallel", "--max-parallel", most]
        elif not (number and argv[number - 1] == "--parallel" and word.isdigit()):
            words.append(word)
    return words


def _number_behind(words: Sequence[str]) -> str | None:
    """Return the number of `--parallel N` or `--parallel=N`, where there is one."""
    _, sign, number = words[0].partition("=")
    if sign:
        return number
    return words[1] if len(words) > 1 and words[1].isdigit() else None


def main(args: Namespace) -> int:
    """Run the batch; return the exit code: 0 where a model succeeded, else 1, 130 after Ctrl-C."""
    from bakeoff.cli import batch_running
    from bakeoff.frontends.batch.batch import BatchOptions

    if (args.task is None) == (args.source is None):
        args.refuse("name one task: a Markdown file, or a task folder")
    args.task = args.task or args.source
    config = args.config
    if config is None and (args.home / CONFIG).is_file():
        config = args.home / CONFIG
    interventions = args.interventions or (3 if args.instructor else None)
    options = BatchOptions(
        task=args.task,
        output=args.output or args.home / "results",
        models=args.models,
        config=config,
        parallel=args.parallel,
        max_parallel=args.max_parallel,
        timeout_s=args.timeout,
        resume=args.resume,
        agent=args.agent,
        rollouts=args.rollouts,
        judge=args.judge,
        instructor=args.instructor,
        interventions=interventions,
        sandbox=args.sandbox,
        executor=args.executor,
        workers=args.workers,
        ray_address=args.ray_address,
        env_file=args.env_file,
        give_up_after_s=args.give_up_after,
        keep_going=args.keep_going,
    )
    if args.dry_run:
        return batch_running.print_plan(options, as_json=args.as_json)
    return batch_running.run(
        options, resume=_resume_command(args), as_json=args.as_json, debug=args.debug
    )


def _resume_command(args: Namespace) -> str:
    """Return the command that resumes a batch, without its id."""
    from bakeoff.frontends.session import command_line, flags

    options = {
        "--task": args.task,
        "--output": args.output,
        "--config": args.config,
        "--sandbox": args.sandbox,
        "--executor": args.executor,
        "--workers": args.workers,
        "--ray-address": args.ray_address,
        "--env-file": args.env_file,
        "--parallel": args.parallel,
        "--max-parallel": args.max_parallel,
        "--give-up-after": seconds(args.give_up_after),
        "--keep-going": args.keep_going,
    }
    return command_line(*args.program, *flags(options), "--resume")


def call(argv: Sequence[str], *, home: Path) -> int:
    """Run as the script in *home* does; a user's mistake is one message, never a traceback."""
    script = home / "batch_runner.py"
    args = parser(home, script.name).parse_args(argv)
    args.program = ["uv", "run", str(script)]
    from bakeoff.frontends.session import run_script

    return run_script(script.name, lambda: main(args))
