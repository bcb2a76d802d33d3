"""A task in Markdown: its front matter, its title, its keys and its success criteria.

    ---
    check: python3 -m unittest          the keys of task.toml, in YAML; may be left out
    ---
    # Task: Fix the typo
    **Difficulty**: Easy                keys: up to the first section, and at the very end
    ## Requirements                     sections, with any name
    ## Success Criteria
    - [ ] The word is spelled right

Everything below the front matter is what the agent is told, word for word.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.formats.text.convert import KeyPath
from bakeoff.formats.text.yaml import parse_yaml

KNOWN_KEYS = {
    "difficulty": "difficulty",
    "repo": "repo",
    "issue": "issue",
    "time estimate": "time_estimate",
    "file location": "file_location",
}

_TITLE = re.compile(r"#\s+(?:Task\s*:\s*)?(.*?)\s*#*\s*$")
_SECTION = re.compile(r"##\s+(.*?)\s*#*\s*$")
_KEY = re.compile(r"(?:[-*]\s+)?\*\*([^*]+?)\s*:?\*\*\s*:?\s*(.*?)\s*$")
_COLON = re.compile(r"\*\*[^*]+(?::\s*\*\*|\*\*\s*:)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s*)?(.*)$")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_MARK = "---"


@dataclass(frozen=True, kw_only=True)
class MarkdownTask:
    """What a Markdown file says. `settings` is its front matter, None where it has none."""

    text: str
    title: str | None
    keys: Mapping[str, str]
    sections: Mapping[str, str]
    criteria: tuple[str, ...]
    settings: Mapping[str, Json] | None
    line_of: Callable[[KeyPath], int | None]


def read_markdown_file(path: Path) -> MarkdownTask:
    """Return the content of *path*."""
    try:
        whole = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error
    front, text = _parted(whole, path)
    if not text.strip():
        raise UsageError(f"{path} is empty; write the agent's instructions into it")
    if front is None:
        return _understood(text, None, _nowhere)
    settings, line_of = parse_yaml(front.encode(), source=str(path), before=1, such_as="category")
    return _understood(text, settings, line_of)


def line_of_key(path: Path, name: str) -> int | None:
    """Return the line of *path* on which a key such as `**Repo**` stands first."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return next((n for n, line in enumerate(lines, start=1) if name in _keys([line])), None)


def _nowhere(_: KeyPath) -> int | None:
    return None


def _parted(whole: str, path: Path) -> tuple[str | None, str]:
    """Return the front matter, if there is one, and the rest."""
    lines = whole.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != _MARK:
        return None, whole
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == _MARK:
            return "".join(lines[1:number]), "".join(lines[number + 1 :]).lstrip("\r\n")
    raise UsageError(f"{path}:1: the front matter that begins here has no second line of {_MARK}")


def _understood(
    text: str, settings: Mapping[str, Json] | None, line_of: Callable[[KeyPath], int | None]
) -> MarkdownTask:
    lines = list(_outside_code(text.splitlines()))
    first = next((n for n, line in enumerate(lines) if _is_section(line)), len(lines))
    title = next((m[1] for line in lines[:first] if line and (m := _TITLE.match(line))), None)
    sections = _sections(text.splitlines(), lines)
    return MarkdownTask(
        text=text,
        title=title or None,
        keys={**_keys_at_the_end(lines[first:]), **_keys(lines[:first])},
        sections=sections,
        criteria=tuple(_items(sections.get("success criteria", ""))),
        settings=settings,
        line_of=line_of,
    )


def _outside_code(lines: Sequence[str]) -> Iterator[str | None]:
    """Yield each line; None for what is inside a block of code, where nothing means anything."""
    fence = None
    for line in lines:
        mark = _FENCE.match(line)
        if fence is not None:
            closes = mark and mark[1].startswith(fence) and not line.strip().strip(fence[0])
            fence = None if closes else fence
            yield None
        elif mark:
            fence = mark[1]
            yield None
        else:
            yield line


def _is_section(line: str | None) -> bool:
    return line is not None and _SECTION.match(line) is not None


def _keys(lines: Sequence[str | None]) -> dict[str, str]:
    keys: dict[str, str] = {}
    for line in lines:
        if line and _COLON.search(line) and (key := _KEY.match(line)):
            name = " ".join(key[1].rstrip(":").lower().split())
            keys.setdefault(KNOWN_KEYS.get(name, name.replace(" ", "_")), key[2])
    return keys


def _keys_at_the_end(lines: Sequence[str | None]) -> dict[str, str]:
    """Return the known keys that close the text: in a body, bold words before a colon are prose."""
    tail: list[str | None] = []
    for line in reversed(lines):
        if line is not None and not line.strip():
            continue
        if not line or not _keys([line]).keys() & set(KNOWN_KEYS.values()):
            break
        tail.append(line)
    return _keys(tail)


def _sections(raw: Sequence[str], lines: Sequence[str | None]) -> dict[str, str]:
    """Return the text of each section by its name in small letters."""
    sections: dict[str, list[str]] = {}
    here: list[str] | None = None
    for text, line in zip(raw, lines, strict=True):
        if line is not None and (heading := _SECTION.match(line)):
            here = sections.setdefault(heading[1].lower(), [])
        elif here is not None:
            here.append(text)
    return {name: "\n".join(body).strip() for name, body in sections.items()}


def _items(text: str) -> Iterator[str]:
    """Yield the items of a list; an indented line continues the item above it."""
    item: list[str] = []
    for line in text.splitlines():
        if (begins := _ITEM.match(line)) and (not item or not line.startswith(("  ", "\t"))):
            if item:
                yield " ".join(item)
            item = [begins[1].strip()]
        elif item and line.strip() and line.startswith((" ", "\t")):
            item.append(line.strip())
        elif item and line.strip():
            yield " ".join(item)
            item = []
    if item:
        yield " ".join(item)
