"""Before and after: how large the code is, how far one trial goes in it, and what it costs.

python -m perf.house OLD NEW                two checkouts, each with its .venv (`make setup`)
python -m perf.house TREE                   one
python -m perf.house OLD NEW --json         as data, with the lists behind the counts
python -m perf.house OLD NEW --only source path
"""

import argparse
import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from perf import source_shape, trial_path
from perf.fast_server import serving
from perf.measure import child
from perf.startup import cpu_ms

TRIALS = 5_000
PAIRS = 7
STARTS = 30

Data = dict[str, Any]
Row = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A checkout of the project, and the interpreter that it is installed for."""

    path: Path
    python: Path

    @property
    def package(self) -> Path:
        return self.path / "src" / "bakeoff"

    @property
    def command(self) -> Path:
        return self.python.with_name("bakeoff")

    @property
    def title(self) -> str:
        """Return the commit, with a + where the source is changed; without git, the folder's name."""
        commit = self._git("rev-parse", "--short", "HEAD")
        changed = self._git("status", "--porcelain", "--", "src")
        return f"{commit}{'+' if changed else ''}" if commit else self.path.name

    def _git(self, *words: str) -> str:
        command = ["git", "-C", str(self.path), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    """Parse, count, measure, print."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.house",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("trees", type=Path, nargs="+", metavar="TREE", help="one checkout or two")
    parser.add_argument(
        "--python",
        type=Path,
        action="append",
        default=[],
        help="the interpreter of a tree, in the order of the trees (default: its .venv/bin/python)",
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", action="store_true", help="print data instead of tables")
    given = parser.parse_args()
    if len(given.trees) > 2 or len(given.python) > len(given.trees):
        parser.error("one or two trees, and not more interpreters than trees")
    trees = _trees(given.trees, given.python)
    titles = [tree.title for tree in trees]
    data: Data = {part: PARTS[part][0](trees) for part in given.only}
    if given.json:
        print(json.dumps({"trees": titles, **data}, indent=2))
        return
    tables = [PARTS[part][1](titles, data[part]) for part in given.only]
    print("\n".join(tables), end="")


def _trees(paths: Sequence[Path], pythons: Sequence[Path]) -> list[Tree]:
    trees = []
    for number, path in enumerate(paths):
        root = path.resolve()
        # not resolved: a venv's interpreter is a link, and only the link knows the venv
        python = pythons[number].absolute() if number < len(pythons) else root / ".venv/bin/python"
        tree = Tree(path=root, python=python)
        _check(tree)
        trees.append(tree)
    return trees


def _check(tree: Tree) -> None:
    if not tree.python.exists():
        raise SystemExit(f"{tree.python} is missing: run `make setup` in {tree.path}, or --python")
    command = [str(tree.python), "-c", "import bakeoff; print(bakeoff.__file__)"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    if Path(done.stdout.strip() or "/").resolve().parent != tree.package:
        place = done.stdout.strip() or "nowhere"
        raise SystemExit(
            f"{tree.python} has bakeoff from {place}, not from {tree.package}: run `make setup` there"
        )


# --- the source ---------------------------------------------------------------------------------


def source(trees: Sequence[Tree]) -> list[Data]:
    """Count what can be read in the source."""
    return [source_shape.describe(tree.package) for tree in trees]


def show_source(titles: Sequence[str], counts: Sequence[Data]) -> str:
    """Return the counts as tables: size and names, files per package, terms."""
    rows = [
        _row("files", counts, lambda c: f"{c['files']:,}"),
        _row("lines", counts, lambda c: f"{c['lines']:,}"),
        _row("lines per file, median", counts, lambda c: f"{c['median_lines']:g}"),
        _row(
            "largest file",
            counts,
            lambda c: f"{c['largest_lines']} (`{c['largest_file']}`)",
        ),
        _row(
            "modules with one importer: import statements",
            counts,
            lambda c: _share(c, "single_importers_by_statement", "percent_by_statement"),
        ),
        _row(
            "modules with one importer: registry strings, too",
            counts,
            lambda c: _share(c, "single_importers", "percent"),
        ),
        _row("public class names defined twice or more", counts, _repeated),
        _row(
            f"duplicate blocks of {source_shape.WINDOW} lines or more",
            counts,
            lambda c: f"{c['duplicate_blocks']} ({c['duplicate_lines']} lines)",
        ),
    ]
    packages = dict.fromkeys(name for c in counts for name in sorted(c["packages"]))
    files = [(f"`{n}`", *(str(c["packages"].get(n, "–")) for c in counts)) for n in packages]
    terms = [(term, *(_named(c, term) for c in counts)) for term in source_shape.TERMS]
    return "\n".join(
        [
            _table(["source", *titles], rows),
            _table(["files in package", *titles], files),
            _table(["term: what is named so", *titles], terms),
        ]
    )


def _share(counts: Data, number: str, percent: str) -> str:
    return f"{counts[number]} ({counts[f'single_importer_{percent}']:.0f} %)"


def _repeated(counts: Data) -> str:
    commonest = list(counts["repeated_classes"].items())[:3]
    names = ", ".join(f"`{name}` {len(users)}" for name, users in commonest)
    return f"{counts['repeated_class_names']}" + (f" ({names})" if names else "")


def _named(counts: Data, term: str) -> str:
    things = counts["terms"][term]
    shown = ", ".join(f"`{thing}`" for thing in things[:3])
    return f"{len(things)}: {shown}" if things else "**none**"


# --- the path of a trial --------------------------------------------------------------------------


def path(trees: Sequence[Tree]) -> list[Data]:
    """Run one trial through each front end of each tree."""
    return [trial_path.walk(tree.path, tree.python) for tree in trees]


def show_path(titles: Sequence[str], walks: Sequence[Data]) -> str:
    """Return how many files and functions each front end goes through."""
    rows = []
    for front_end in walks[0]:
        for unit in ("files", "functions"):
            cells = [
                f"{w[front_end][unit]:,} ({w[front_end][f'{unit}_before']:,} before the trial)"
                for w in walks
            ]
            rows.append((f"{front_end}: {unit}", *cells))
    return _table(["one trial goes through", *titles], rows)


# --- CPU ------------------------------------------------------------------------------------------


def cpu(trees: Sequence[Tree]) -> list[Data]:
    """Measure the trees in turns: whatever else the machine does hits all alike."""
    for tree in trees:
        cpu_ms([str(tree.command), "--help"])  # the first start may have to compile
    starts = _in_turns(trees, STARTS, lambda tree: cpu_ms([str(tree.command), "--help"]))
    with serving() as url:
        costs = _in_turns(
            trees,
            PAIRS,
            lambda tree: child("trial_cost", "bakeoff", url, TRIALS, python=tree.python)["us"],
        )
    return [
        {"help_ms": help_ms, "trial_us": trial_us}
        for help_ms, trial_us in zip(starts, costs, strict=True)
    ]


def _in_turns(
    trees: Sequence[Tree], times: int, measure: Callable[[Tree], float]
) -> list[list[float]]:
    """Measure every tree once a round, and begin each round with another one."""
    values: list[list[float]] = [[] for _ in trees]
    for turn in range(times):
        order = range(len(trees)) if turn % 2 == 0 else reversed(range(len(trees)))
        for number in order:
            values[number].append(measure(trees[number]))
    return values


def show_cpu(titles: Sequence[str], measured: Sequence[Data]) -> str:
    """Return the cheapest of all rounds for each tree, and the ratio of the second to the first."""
    rows = []
    for key, name, unit in (
        ("trial_us", f"CPU per trial over HTTP, least of {PAIRS} × {TRIALS:,}", "µs"),
        ("help_ms", f"CPU of `bakeoff --help`, least of {STARTS}", "ms"),
    ):
        cells = [f"{min(m[key]):.1f} {unit}" for m in measured]
        if len(measured) == 2:
            old, new = measured[0][key], measured[1][key]
            middle = median(b / a for a, b in zip(old, new, strict=True))
            cells.append(f"{min(new) / min(old):.2f} × (median of pairs {middle:.2f} ×)")
        rows.append((name, *cells))
    return _table(["CPU, in turns", *titles, *["new / old"][: len(measured) - 1]], rows)


# --- tables ---------------------------------------------------------------------------------------


def _row(name: str, counts: Iterable[Data], shown: Callable[[Data], object]) -> Row:
    return (name, *(str(shown(count)) for count in counts))


def _table(head: Sequence[str], rows: Iterable[Row]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


PARTS: dict[str, tuple[Callable[[Sequence[Tree]], Any], Callable[[Sequence[str], Any], str]]] = {
    "source": (source, show_source),
    "path": (path, show_path),
    "cpu": (cpu, show_cpu),
}


if __name__ == "__main__":
    main()
