import json
import random
import subprocess
import sys
import unittest
from pathlib import Path


def ask(script, given=None):
    """Run *script* with the solution in a process of its own; return the JSON that it prints.

    What is tested cannot reach the tests that way.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\ngiven = json.load(sys.stdin)\n{script}"],
        input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


# Plans every case, and tells what came of it.
PLAN = """
from builder.plan import CycleError, stages
assert issubclass(CycleError, ValueError)
told = []
for needs, workers in given:
    before = json.dumps(needs)
    try:
        found = stages(needs, workers)
    except CycleError as error:
        found = {"cycle": list(error.cycle)}
    except ValueError:
        found = "ValueError"
    told.append(found if json.dumps(needs) == before else "it changed what it was given")
print(json.dumps(told))
"""


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
    def test_the_example_and_nothing_at_all(self):
        example = ({"app": ["lib", "log"], "lib": ["base"]}, 2)
        self.assertEqual(ask(PLAN, [example, ({}, 3)]), [[["base", "log"], ["lib"], ["app"]], []])

    def test_many_random_plans(self):
        chance, cases = random.Random(7), []
        for _ in range(300):
            names = [f"t{n}" for n in range(chance.randint(1, 12))]
            chance.shuffle(names)
            needs = {
                name: chance.choices(names[:at], k=chance.randint(0, 3)) if at else []
                for at, name in enumerate(names)
                if chance.random() < 0.9
            }
            cases.append((needs, chance.randint(1, 4)))
        for case, found in zip(cases, ask(PLAN, cases), strict=True):
            self.assertEqual(found, expected(*case), case)

    def test_cycles_are_found_and_named(self):
        cases = [
            {"a": ["a"]},
            {"a": ["b"], "b": ["a"]},
            {"x": [], "a": ["b", "x"], "b": ["c"], "c": ["a"], "d": ["a"]},
            {"start": ["a"], "a": ["b"], "b": ["c"], "c": ["b"]},
        ]
        for needs, found in zip(cases, ask(PLAN, [(needs, 2) for needs in cases]), strict=True):
            cycle = found["cycle"]
            self.assertEqual(len(cycle), len(set(cycle)))
            for at, target in enumerate(cycle):
                self.assertIn(cycle[(at + 1) % len(cycle)], needs[target])

    def test_without_workers_nothing_is_built(self):
        self.assertEqual(ask(PLAN, [({"a": []}, 0), ({"a": []}, -1)]), ["ValueError"] * 2)

    def test_a_long_chain_works(self):
        chain = {f"t{n:05}": [f"t{n - 1:05}"] for n in range(1, 5000)}
        ring = {**chain, "t00000": ["t04999"]}
        line, round_trip = ask(PLAN, [(chain, 4), (ring, 4)])
        self.assertEqual(len(line), 5000)
        self.assertEqual(len(round_trip["cycle"]), 5000)

    def test_graphlib_is_not_used(self):
        self.assertNotIn("graphlib", Path("builder", "plan.py").read_text(encoding="utf-8"))
