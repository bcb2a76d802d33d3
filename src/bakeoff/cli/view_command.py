"""`bakeoff view`."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from bakeoff.cli.options import new_parser

_EXAMPLES = """\
  bakeoff view
  bakeoff view results --port 8080 --no-open"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "view",
        "Look at runs in the browser: live while they run, with every trial, side by side.\n"
        "It prints its address, which holds a token, and serves until Ctrl-C. Nothing leaves\n"
        "this machine.",
        examples=_EXAMPLES,
    )
    p.add_argument("folder", nargs="?", type=Path, default=Path("runs"), metavar="DIR",
                   help="where runs are kept (default: runs)")  # fmt: skip
    p.add_argument("--port", type=_port, default=0, metavar="N",
                   help="listen at this port (default: a free one)")  # fmt: skip
    p.add_argument("--host", default="127.0.0.1", metavar="H",
                   help="listen at this address (default: 127.0.0.1, this machine only)")  # fmt: skip
    p.add_argument("--no-open", action="store_true", help="do not open a browser")
    return p


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def main(args: Namespace) -> int:
    """Serve until Ctrl-C."""
    from bakeoff._lib.threads import run_sync
    from bakeoff.core.errors import UsageError

    if not args.folder.is_dir():
        raise UsageError(
            f"there is no folder {args.folder}; name the one that `bakeoff run` wrote to"
        )
    try:
        run_sync(_serve(args))
    except KeyboardInterrupt:
        print()
    return 0


async def _serve(args: Namespace) -> None:
    import asyncio
    import webbrowser

    from bakeoff.web.server import serving

    async with serving(args.folder, host=args.host, port=args.port) as viewer:
        print(f"{viewer.url}", flush=True)
        if not args.no_open:
            await asyncio.to_thread(webbrowser.open, viewer.url)
        await asyncio.Event().wait()
