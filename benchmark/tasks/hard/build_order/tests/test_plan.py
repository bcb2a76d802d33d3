import random
import unittest
from pathlib import Path

from builder.plan import CycleError, stages


def expected(needs, workers):
    """Say it again, slowly: what was ready first goes first, then by name."""
    waits = {target: set(needed) for target, needed in needs.items()}
    for needed in list(waits.values()):
        for target in needed:
            waits.setdefault(target, set())
    built, since, found = set(), {}, []
    while len(built) < len(waits):
        for target, needed in waits.items():
            if target not in built and needed <= built:
                since.setdefault(target, len(found))
        ready = sorted((when, t) for t, when in since.items() if t not in built)
        stage = [t for _, t in ready[:workers]]
        built |= set(stage)
        found.append(stage)
    return found


class Order(unittest.TestCase):
    def test_the_example(self):
        self.assertEqual(
            stages({"app": ["lib", "log"], "lib": ["base"]}, 2), [["base", "log"], ["lib"], ["app"]]
        )

    def test_nothing_is_no_stage(self):
        self.assertEqual(stages({}, 3), [])

    def test_many_random_plans(self):
        chance = random.Random(7)
        for _ in range(300):
            names = [f"t{n}" for n in range(chance.randint(1, 12))]
            chance.shuffle(names)
            needs = {
                name: chance.choices(names[:at], k=chance.randint(0, 3)) if at else []
                for at, name in enumerate(names)
                if chance.random() < 0.9
            }
            workers = chance.randint(1, 4)
            self.assertEqual(stages(needs, workers), expected(needs, workers), needs)

    def test_what_it_is_given_is_not_changed(self):
        needs = {"a": ["b", "b"], "b": []}
        stages(needs, 1)
        self.assertEqual(needs, {"a": ["b", "b"], "b": []})

    def test_cycles_are_found_and_named(self):
        for needs in (
            {"a": ["a"]},
            {"a": ["b"], "b": ["a"]},
            {"x": [], "a": ["b", "x"], "b": ["c"], "c": ["a"], "d": ["a"]},
            {"start": ["a"], "a": ["b"], "b": ["c"], "c": ["b"]},
        ):
            with self.assertRaises(CycleError) as caught:
                stages(needs, 2)
            cycle = caught.exception.cycle
            self.assertEqual(len(cycle), len(set(cycle)))
            for at, target in enumerate(cycle):
                self.assertIn(cycle[(at + 1) % len(cycle)], needs[target])

    def test_a_cycle_is_a_value_error(self):
        self.assertTrue(issubclass(CycleError, ValueError))

    def test_without_workers_nothing_is_built(self):
        for workers in (0, -1):
            with self.assertRaises(ValueError):
                stages({"a": []}, workers)

    def test_a_long_chain_works(self):
        needs = {f"t{n:05}": [f"t{n - 1:05}"] for n in range(1, 5000)}
        found = stages(needs, 4)
        self.assertEqual(len(found), 5000)
        needs["t00000"] = ["t04999"]
        with self.assertRaises(CycleError) as caught:
            stages(needs, 4)
        self.assertEqual(len(caught.exception.cycle), 5000)

    def test_graphlib_is_not_used(self):
        self.assertNotIn("graphlib", Path("builder", "plan.py").read_text(encoding="utf-8"))
