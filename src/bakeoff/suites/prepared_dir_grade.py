"""How a prepared task is graded: its rubrics and their tests, as the scorer takes them."""

from collections.abc import Callable
from pathlib import Path

from bakeoff.config.lines import shown
from bakeoff.core.errors import UsageError
from bakeoff.core.place import Place
from bakeoff.core.task import ScorerSpec
from bakeoff.core.values import Json
from bakeoff.suites.prepared_dir_files import Evaluation, Rubric, TestScript
from bakeoff.suites.prepared_dir_repo import inside

_ALL = Rubric(id="tests", criterion="All tests pass.")


def rubrics_scorer(
    folder: Path, evaluation: Evaluation, *, said: Callable[[str], Place]
) -> ScorerSpec:
    """Return the scorer for the task in *folder*; *said* tells where a key of *evaluation* stands.

    Tests without any rubric are one rubric of their own.
    """
    scripts = evaluation.test_scripts or []
    rubrics = evaluation.rubrics or ([_ALL] if scripts else [])
    if not rubrics:
        raise UsageError(
            f"{shown(said('rubrics'))}: nothing says whether the work is right; write `evaluation.rubrics` and "
            "`evaluation.test_scripts`"
        )
    _check(rubrics, scripts, said)
    only = rubrics[0].id if len(rubrics) == 1 else None
    return ScorerSpec(
        name="rubrics",
        settings={
            "rubrics": [_rubric(rubric) for rubric in rubrics],
            "test_scripts": [
                _script(folder, script, only, said("test_scripts").inside(number, "path"))
                for number, script in enumerate(scripts)
            ],
        },
        origin=said("rubrics"),
    )


def _check(rubrics: list[Rubric], scripts: list[TestScript], said: Callable[[str], Place]) -> None:
    ids = [rubric.id for rubric in rubrics]
    for number, name in enumerate(ids):
        if name in ids[:number]:
            where = shown(said("rubrics").inside(number, "id"))
            raise UsageError(f"{where}: rubric {name!r} is there twice; give each its own `id`")
    for number, script in enumerate(scripts):
        known = script.rubric_id in ids or (script.rubric_id is None and len(ids) == 1)
        if not known:
            where = shown(said("test_scripts").inside(number, "rubric_id"))
            raise UsageError(
                f"{where}: test script {script.path!r} is for rubric {script.rubric_id!r}; "
                f"there are: {', '.join(ids)}"
            )
    if not any(rubric.weight for rubric in rubrics):
        where = shown(said("rubrics"))
        raise UsageError(f"{where}: all rubrics have weight 0: nothing would count")


def _rubric(rubric: Rubric) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "id": rubric.id,
        "criterion": rubric.criterion,
        "weight": rubric.weight,
    }
    if rubric.evaluation_criteria is not None:
        entry["evaluation_criteria"] = rubric.evaluation_criteria
    return entry


def _script(folder: Path, script: TestScript, only: str | None, at: Place) -> dict[str, Json]:
    path = inside(script.path.removeprefix("/app/"), at)
    entry: dict[str, Json] = {"path": path, "rubric_id": script.rubric_id or only}
    content = script.content
    if content is None:
        content = _text(folder, path)
    if content is not None:
        entry["content"] = content
    return entry


def _text(folder: Path, path: str) -> str | None:
    """Return the text of a test that lies in the prepared folder; None for one of the repo's own."""
    for file in (folder / path, folder / "evaluation" / path):
        if file.is_file():
            try:
                return file.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(f"{file} is not UTF-8 text (byte {error.start})") from error
    return None
