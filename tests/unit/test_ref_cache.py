"""The reference-counted cache: made once, shared, never discarded while in use."""

import asyncio
import random

import pytest

from bakeoff.workspaces.pristine import RefCache


class Things:
    """Makes numbered things slowly and knows which are still there."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.there: set[int] = set()

    async def make(self, name: str) -> int:
        await asyncio.sleep(0)
        self.made.append(name)
        self.there.add(len(self.made))
        return len(self.made)

    async def discard(self, thing: int) -> None:
        await asyncio.sleep(0)
        self.there.remove(thing)


def test_a_thing_is_made_once_for_all_who_want_it_at_once() -> None:
    async def run() -> None:
        things = Things()
        cache = RefCache[int](max_idle=1, discard=things.discard)

        async def use() -> int:
            async with cache.acquire("a", lambda: things.make("a")) as thing:
                await asyncio.sleep(0)
                return thing

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(use()) for _ in range(20)]
        assert {task.result() for task in tasks} == {1}
        assert things.made == ["a"]
        await cache.close()
        assert things.there == set()

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_discarded_while_it_is_used_and_all_of_it_in_the_end(seed: int) -> None:
    dice = random.Random(seed)

    async def run() -> None:
        things = Things()
        cache = RefCache[int](max_idle=2, discard=things.discard)

        async def use(name: str) -> None:
            async with cache.acquire(name, lambda: things.make(name)) as thing:
                for _ in range(dice.randrange(6)):
                    assert thing in things.there
                    await asyncio.sleep(0)

        async def impatient(name: str) -> None:
            using = asyncio.create_task(use(name))
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)
            using.cancel()
            await asyncio.wait({using})
            if not using.cancelled():
                using.result()

        async with asyncio.TaskGroup() as group:
            for _ in range(200):
                part = dice.choice([use, use, impatient])
                group.create_task(part(dice.choice("abcdefg")))
                if dice.random() < 0.3:
                    await asyncio.sleep(0)
        assert len(things.there) <= 2
        await cache.close()
        assert things.there == set()

    asyncio.run(run())


def test_what_could_not_be_made_is_made_anew_by_the_next() -> None:
    async def run() -> None:
        things = Things()
        cache = RefCache[int](max_idle=1, discard=things.discard)

        async def fail() -> int:
            raise OSError("no disk")

        with pytest.raises(OSError, match="no disk"):
            async with cache.acquire("a", fail):
                pass
        async with cache.acquire("a", lambda: things.make("a")) as thing:
            assert thing == 1
        await cache.close()

    asyncio.run(run())
