"""Several runs or candidates beside each other: what moved, by how much, and whether that is sure. A page of its own."""

from collections.abc import Iterator, Mapping, Sequence

from bakeoff._lib.value_object import value_object
from bakeoff.core.run_spec import Manifest
from bakeoff.reports.comparison import comparison_notes
from bakeoff.reports.html import charts
from bakeoff.reports.html.run import shared_settings
from bakeoff.reports.html.templates import pages
from bakeoff.reports.wording.phrases import counted, moment
from bakeoff.stats.between_runs import Contrast

MOST_MOVED = 100


@value_object
class Step:
    """What became of the candidates from one side to another: of a run and a later one, or two candidates."""

    before: str
    after: str
    contrasts: Sequence[Contrast]
    tasks: int
    notes: Sequence[str] = ()
    only_before: int = 0
    only_after: int = 0

    @property
    def chart(self) -> charts.Chart:
        """The differences around zero."""
        return charts.contrasts(self.contrasts)

    @property
    def remarks(self) -> tuple[str, ...]:
        """By which method, and what is left out."""
        return tuple(
            comparison_notes(
                self.contrasts, only_before=self.only_before, only_after=self.only_after
            )
        )


@value_object
class ComparedRun:
    """A run of a comparison, with how it was run."""

    id: str
    manifest: Manifest

    @property
    def settings(self) -> Mapping[str, str]:
        """What holds for every candidate of it."""
        return {name: value for name, value in shared_settings(self.manifest) if value}


def settings_apart(runs: Sequence[ComparedRun]) -> list[tuple[str, list[str]]]:
    """Return the settings in which runs differ, each with its value in every run."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    rows = [(name, [run.settings.get(name, "") for run in runs]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def render(runs: Sequence[ComparedRun], steps: Sequence[Step], *, made_at: str) -> Iterator[str]:
    """Yield the page of several runs compared, the earliest first: each later one with it."""
    return pages(
        "compared.html",
        runs=runs,
        steps=steps,
        apart=settings_apart(runs),
        facts=(counted(len(runs), "run"), counted(max(s.tasks for s in steps), "shared task"), moment(made_at)),
        most=MOST_MOVED,
        no_link=lambda *_: "",
    )  # fmt: skip
