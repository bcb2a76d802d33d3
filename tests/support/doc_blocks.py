"""The fenced blocks of a page of the documentation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: its language, what is said behind it, and the output that follows it."""

    page: Path
    line: int
    language: str
    kind: str
    text: str
    output: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(BLOCK.finditer(text))
    for match, after in zip_longest(found, found[1:]):
        follows = after is not None and text[match.end() : after.start()] == "\n"
        yield Block(
            page=page,
            line=text.count("\n", 0, match.start()) + 1,
            language=match[1],
            kind=match[2].strip(),
            text=match[3],
            output=after[3] if after is not None and follows and after[1] == "text" else None,
        )
