"""Puts the examples and the pages of the docs into the wheel: `bakeoff init` copies and names them."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ExamplesAndDocs(BuildHookInterface[Any]):
    """Adds them to a wheel; an editable install has those of the clone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say which files go where."""
        if version == "editable":
            return
        root = Path(self.root)
        pages = [
            path for path in (root / "docs").rglob("*") if path.suffix in {".md", ".png", ".json"}
        ]
        build_data["force_include"][str(root / "examples")] = "bakeoff/examples"
        for page in pages:
            build_data["force_include"][str(page)] = f"bakeoff/{page.relative_to(root)}"
