"""What a package's source looks like to a newcomer: its files, who imports whom, names and repeats.

Everything is read from the source text; nothing of the package is imported, so any version of it
can be counted with the same code.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TypeGuard

WINDOW = 6  # lines that must be equal, one after another, to make a duplicate
TERMS = (
    "rate limit", "backoff", "jitter", "retry", "semaphore", "connection pool", "probe",
    "sanitize", "cleanup", "reservation", "source location",
)  # fmt: skip

_REFERENCE = re.compile(r"([A-Za-z_]\w*(?:\.\w+)+)(?::[A-Za-z_][\w.]*)?")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class Module:
    """One source file and its dotted name."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def definitions(self) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in self.nodes if isinstance(node, kinds)]

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def read_modules(package: Path) -> dict[str, Module]:
    """Return the modules of the package in the folder *package*, by dotted name."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, path, path.read_text(encoding="utf-8"))
    return modules


def describe(package: Path) -> dict[str, object]:
    """Return every count of the package in the folder *package*, as data."""
    modules = read_modules(package)
    if not modules:
        raise SystemExit(f"{package}: no Python files there; name a checkout of the project")
    single = single_importers(modules)
    single_statements = single_importers(modules, strings=False)
    counted = max(sum(not module.is_package for module in modules.values()), 1)
    names = repeated_classes(modules)
    blocks = duplicate_blocks(modules)
    lines = [module.lines for module in modules.values()]
    return {
        "files": len(modules),
        "lines": sum(lines),
        "median_lines": median(lines),
        "largest_lines": max(lines),
        "largest_file": max(modules.values(), key=lambda module: module.lines).name,
        "packages": files_per_package(modules),
        "single_importers": len(single),
        "single_importer_percent": 100 * len(single) / counted,
        "single_importers_by_statement": len(single_statements),
        "single_importer_percent_by_statement": 100 * len(single_statements) / counted,
        "single_importer_modules": single,
        "repeated_class_names": len(names),
        "repeated_classes": names,
        "duplicate_blocks": len(blocks),
        "duplicate_lines": sum(block.lines for block in blocks),
        "duplicates": [str(block) for block in blocks],
        "terms": {term: named_things(modules, term) for term in TERMS},
    }


# --- files and imports ------------------------------------------------------------------------


def files_per_package(modules: Mapping[str, Module]) -> dict[str, int]:
    """Return how many files each package directly below the root holds, largest first."""
    parts = [(module.name.split("."), module.is_package) for module in modules.values()]
    return dict(
        Counter(p[1] for p, package in parts if len(p) > 2 or (package and p[1:])).most_common()
    )


def importers(modules: Mapping[str, Module], *, strings: bool = True) -> dict[str, set[str]]:
    """Return, for each module, the modules that import it, wherever in their text they do.

    With *strings*, a string that is a module's name, alone or as "module:attribute", counts as an
    import too: registries and lazy imports are written that way.
    """
    users: dict[str, set[str]] = {name: set() for name in modules}
    for importer in modules.values():
        names = {*_imported(importer, modules), *(_strings(importer) if strings else ())}
        for name in names & modules.keys() - {importer.name}:
            users[name].add(importer.name)
    return users


def single_importers(modules: Mapping[str, Module], *, strings: bool = True) -> dict[str, str]:
    """Return the modules that exactly one other imports, and which; packages do not count."""
    return {
        name: next(iter(users))
        for name, users in importers(modules, strings=strings).items()
        if len(users) == 1 and not modules[name].is_package
    }


def _imported(importer: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    for node in importer.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, importer)
            members = [f"{source}.{alias.name}" for alias in node.names]
            yield from (member if member in modules else source for member in members)


def _source(node: ast.ImportFrom, importer: Module) -> str:
    """Return the dotted name that a `from` import names, which may be relative."""
    above = importer.name.split(".")
    if not importer.is_package:
        above.pop()
    kept = above[: len(above) - node.level + 1] if node.level else []
    return ".".join([*kept, *([node.module] if node.module else [])])


def _strings(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            reference = _REFERENCE.fullmatch(node.value)
            if reference:
                yield reference[1]


# --- names ------------------------------------------------------------------------------------


def repeated_classes(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    """Return the public class names that two or more modules define, the commonest first."""
    places = defaultdict(list)
    for module in modules.values():
        defined = {node.name for node in module.tree.body if isinstance(node, ast.ClassDef)}
        for name in sorted(defined):
            if not name.startswith("_"):
                places[name].append(module.name)
    repeated = {name: users for name, users in places.items() if len(users) > 1}
    return dict(sorted(repeated.items(), key=lambda entry: (-len(entry[1]), entry[0])))


def named_things(modules: Mapping[str, Module], term: str) -> list[str]:
    """Return the modules, classes and functions whose name has *term* in it, in that order."""
    wanted = snake_case(term)
    kinds: tuple[list[str], list[str], list[str]] = ([], [], [])
    for module in modules.values():
        if wanted in snake_case(module.name.rpartition(".")[2]):
            kinds[0].append(module.name)
        for node in module.definitions:
            if wanted in snake_case(node.name):
                kinds[1 if isinstance(node, ast.ClassDef) else 2].append(
                    f"{module.name}:{node.name}"
                )
    return [*kinds[0], *kinds[1], *kinds[2]]


def snake_case(name: str) -> str:
    """Return *name*, which may be CamelCase or have spaces, in lower case with underscores."""
    return _HUMP.sub("_", name).replace(" ", "_").lower()


# --- repeats ----------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Block:
    """Two places with the same lines; each is a module and the number of its first line."""

    first: tuple[str, int]
    second: tuple[str, int]
    lines: int

    def __str__(self) -> str:
        places = [f"{name}:{line}" for name, line in (self.first, self.second)]
        return f"{self.lines} lines: {places[0]} = {places[1]}"


def duplicate_blocks(modules: Mapping[str, Module], window: int = WINDOW) -> list[Block]:
    """Return the longest equal runs of *window* lines or more, the longest first."""
    texts = {name: code_lines(module) for name, module in modules.items()}
    places = defaultdict(list)
    for name, lines in texts.items():
        for start in range(len(lines) - window + 1):
            places[tuple(text for _, text in lines[start : start + window])].append((name, start))
    equal = {pair for spots in places.values() for pair in combinations(spots, 2)}
    blocks = []
    for first, second in equal:
        if (_moved(first, -1), _moved(second, -1)) in equal:
            continue  # in the middle of a longer run
        length = 1
        while (_moved(first, length), _moved(second, length)) in equal:
            length += 1
        begins = [(name, texts[name][start][0]) for name, start in (first, second)]
        blocks.append(Block(begins[0], begins[1], window + length - 1))
    return sorted(blocks, key=lambda block: (-block.lines, block))


def _moved(place: tuple[str, int], by: int) -> tuple[str, int]:
    return place[0], place[1] + by


def code_lines(module: Module) -> list[tuple[int, str]]:
    """Return the lines of code with their numbers: no blank lines, comments, docstrings, imports.

    White space is folded, and lines of brackets alone are passed over.
    """
    passed_over = {number for node in module.nodes if _is_prose(node) for number in _extent(node)}
    kept = []
    for number, line in enumerate(module.text.splitlines(), start=1):
        text = " ".join(line.split())
        if number not in passed_over and any(map(str.isalnum, text)) and not text.startswith("#"):
            kept.append((number, text))
    return kept


def _is_prose(node: ast.AST) -> TypeGuard[ast.stmt]:
    """Say whether *node* is an import or a docstring."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return isinstance(node.value.value, str)
    return isinstance(node, ast.Import | ast.ImportFrom)


def _extent(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
