"""Draw what `make demo` prints: `python -m docs.picture` runs the demo and writes the picture."""

import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

import bakeoff
from bakeoff.cli.tables import print_summary

PICTURE = Path(__file__).parent / "images" / "demo.svg"
SUITE = Path(__file__).parent.parent / "examples" / "quick" / "suite.json"


def main() -> None:
    """Run the demo on the embedded model and keep its screen."""
    with tempfile.TemporaryDirectory() as folder:
        run = bakeoff.run(SUITE, models=["embedded"], output=folder)
        screen = Console(record=True, width=92, file=io.StringIO(), force_terminal=True)
        screen.print(Text("$ make demo", style="bold"))
        print_summary(run.summary(), folder=Path("runs") / run.id, out=screen)
    svg = screen.export_svg(title="bakeoff")
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
