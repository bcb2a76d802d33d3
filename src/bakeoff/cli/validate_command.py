"""`bakeoff validate`."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, new_parser
from bakeoff.core.errors import UsageError


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "validate",
        "Check SOURCE without running it: every key, name and setting, and what would be planned.\n"
        "A task (a folder, a folder of those, or a Markdown file) is proven: its reference solution\n"
        "must score 1, and neither doing nothing nor a cheater may pass. That runs commands, but asks\n"
        "no model. The verdict is SOUND, SOUND with a limit, or NOT SOUND (exit code 1).",
    )
    p.add_argument(
        "source", type=Path, metavar="SOURCE", help="a .json, .toml or .md file, or a folder"
    )
    p.add_argument("-m", "--model", action="append", default=[], dest="models", metavar="M",
                   help="as for `run`")  # fmt: skip
    p.add_argument("--base-url", metavar="URL", help="as for `run`")
    p.add_argument("--sandbox", metavar="NAME", help="as for `run`")
    p.add_argument("--trust", action="store_true",
                   help="let a task run its own Python (module:attr) as scorers, with your rights")  # fmt: skip
    p.add_argument("--test", action="append", default=[], dest="tests", metavar="ID",
                   help="only this task of a folder (* and ? work); may be repeated")  # fmt: skip
    p.add_argument("--strict", action="store_true",
                   help="a task that is sound with a limit fails too (exit code 1)")  # fmt: skip
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print what is right about it; what is wrong is an error."""
    from bakeoff._lib.sanitize import for_terminal
    from bakeoff.app import checks
    from bakeoff.formats.detect import is_of_tasks

    if is_of_tasks(args.source):
        return _prove(args)
    if args.as_json or args.strict:
        raise UsageError(f"--json and --strict are for tasks (folders, .md), not {args.source}")
    for line in checks.check(args.source, models=args.models, base_url=args.base_url):
        print(for_terminal(line))
    return 0


def _prove(args: Namespace) -> int:
    """Print what came of each task; a task that does not pass is an error."""
    import sys
    from contextlib import nullcontext

    from bakeoff._lib.sanitize import for_terminal
    from bakeoff.app.validation import Finding, How, validate_tasks
    from bakeoff.cli.views.progress import RunProgress
    from bakeoff.cli.views.terminal import LiveView
    from bakeoff.core.events import Event, Notice

    def print_notice(event: Event) -> None:
        if isinstance(event, Notice):
            print(for_terminal(event.text), file=sys.stderr)

    shown: list[Finding] = []

    def show(finding: Finding) -> None:
        shown.append(finding)
        for line in finding.lines():
            print(for_terminal(line), flush=True)

    view = LiveView(RunProgress()) if sys.stderr.isatty() else None
    with view or nullcontext():
        how = How(
            sandbox=args.sandbox,
            trust=args.trust,
            tests=args.tests,
            listener=view or print_notice,
            # a view moves by itself, and lines would break it
            on_finding=None if view or args.as_json else show,
        )
        findings = validate_tasks(args.source, how)
    if args.as_json:
        print_json([finding.as_json() for finding in findings])
    else:
        for finding in findings:
            if finding not in shown:
                show(finding)
    return 0 if all(finding.passes(strict=args.strict) for finding in findings) else 1
