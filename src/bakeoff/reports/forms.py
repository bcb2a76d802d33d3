"""The formats of a run report, and how they are written to files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bakeoff._lib import files
from bakeoff._lib.files import replacing
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.sanitize import well_formed
from bakeoff.core.errors import UsageError
from bakeoff.reports import markdown as markdown_report
from bakeoff.reports.data_files import render_csv, render_json, render_junit
from bakeoff.reports.html import run
from bakeoff.reports.wording.findings import Findings

_FORMS: dict[str, tuple[str, Callable[[Findings], Iterator[str]]]] = {
    "html": ("report.html", run.render),
    "csv": ("report.csv", render_csv),
    "json": ("report.json", render_json),
    "junit": ("junit.xml", render_junit),
    "md": ("report.md", markdown_report.render),
}


def check(formats: Iterable[str]) -> tuple[str, ...]:
    """Return *formats* without duplicates; raise `UsageError` for an unknown one."""
    chosen = tuple(dict.fromkeys(formats))
    for name in chosen:
        if name not in _FORMS:
            hint = did_you_mean(name, _FORMS)
            raise UsageError(f"a report has no format {name!r}; {hint}")
    return chosen


def write_report(findings: Findings, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write *findings* into *folder* in each of *formats*, and return the files."""
    written = []
    for name in formats:
        file_name, render = _FORMS[name]
        try:
            files.make_folder(folder)
            with replacing(folder / file_name, durable=False) as file:
                for part in render(findings):
                    file.write(well_formed(part).encode())
        except OSError as error:
            raise UsageError(
                f"{folder / file_name} cannot be written: {error.strerror}; "
                "choose another folder with --to"
            ) from error
        written.append(folder / file_name)
    return written
