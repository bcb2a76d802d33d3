"""The workspace of a case with data: read-only datasets, and hidden files for grading."""

from dataclasses import dataclass
from pathlib import Path

from bakeoff._lib.digest import tree_digest
from bakeoff.core.task import Message
from bakeoff.core.workspace import Tree, Workspace

ROOT = "/app"
DATASETS = f"{ROOT}/datasets"
GROUND_TRUTH = "/bakeoff/ground_truth"
EVALUATION = "/bakeoff/evaluation"
PREDICTION = "submission.csv"
BETTER_THAN_THE_BASELINE = 1e-6
"""The least skill that passes."""


@dataclass(frozen=True, kw_only=True)
class DataWorkspace:
    """The folders of a case; without any, and if no agent needs a box, there is no workspace.

    `files` are the agent's to change. The truth and the evaluation are only in the clean room.
    """

    datasets: Path | None = None
    truth: Path | None = None
    evaluation: Path | None = None
    files: Path | None = None
    tests: Path | None = None
    boxed: bool = False

    def workspace(self) -> Workspace | None:
        """Return the workspace, if there is to be one."""
        if not (self.datasets or self.evaluation or self.files or self.boxed):
            return None
        hidden = ((self.truth, GROUND_TRUTH), (self.evaluation, EVALUATION), (self.tests, "tests"))
        return Workspace(
            root=ROOT,
            files=tuple(_tree(path, at) for path, at in ((self.files, ""),) if path),
            shown=tuple(_tree(path, at) for path, at in ((self.datasets, DATASETS),) if path),
            hidden=tuple(_tree(path, at) for path, at in hidden if path),
            protected=("tests",) if self.tests else (),
            environment={"DATASETS": DATASETS} if self.datasets else {},
        )

    def messages(self) -> tuple[Message, ...]:
        """Return the system message that describes the workspace."""
        if self.workspace() is None:
            return ()
        sentences = [f"You work in the folder {ROOT}."]
        if self.datasets is not None:
            names = sorted(f.name for f in self.datasets.iterdir())
            sentences.append(
                f"The data is in {DATASETS} (also in the variable DATASETS) and can only be read: "
                f"{', '.join(names)}."
            )
        if self.evaluation is not None:
            sentences.append(f"Predictions that you are asked for go to {ROOT}/{PREDICTION}.")
        return (Message(role="system", content=" ".join(sentences)),)


def _tree(path: Path, at: str) -> Tree:
    return Tree(path=str(path.resolve()), digest=tree_digest(path), at=at)
