"""A runner to be killed: opens boxes of a backend, starts something in each, says so, and waits.

python -m support.box_runner BACKEND COUNT TOKEN
"""

import asyncio
import sys
from functools import partial

from bakeoff._lib import process_identity, scratch
from bakeoff.core.sandbox import Command
from support.sandboxes import BACKENDS


def _heard(up: asyncio.Event, _: object) -> None:
    up.set()


async def main(name: str, count: int, token: str) -> None:
    backend = next(backend for backend in BACKENDS if backend.name == name)
    async with backend.sandbox() as opener, asyncio.TaskGroup() as group:
        script = f"setsid sleep {token} >/dev/null 2>&1 & echo up; exec sleep {token}"
        for _ in range(count):
            box = await opener.open(scratch.new_folder("files"))
            up = asyncio.Event()
            command = Command(argv=("sh", "-c", script), on_output=partial(_heard, up))
            group.create_task(box.run(command))
            await up.wait()
        print(process_identity.current(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
