"""The numbers of a classifier. Reference values: scikit-learn 1.9.1, and the examples of its documentation."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import bakeoff
from bakeoff.core.record import Attempt, Score, Status, TrialRecord
from bakeoff.stats.classification import Classification, classifications
from bakeoff.stats.classification import _Sample as Sample
from support.doc_blocks import ROOT, blocks

# confusion_matrix, precision_recall_fscore_support, f1_score and matthews_corrcoef of 60 labels
MAIL = {
    ("ham", "ham"): 29, ("ham", "offer"): 2, ("ham", "spam"): 4, ("ham", None): 3,
    ("offer", "offer"): 11, ("offer", None): 1,
    ("spam", "offer"): 1, ("spam", "spam"): 7, ("spam", None): 2,
}  # fmt: skip


def _records(
    cells: Mapping[tuple[str, str | None], int], *, rollouts: int = 1, candidate: str = "c"
) -> list[TrialRecord]:
    listed = [cell for cell, count in cells.items() for _ in range(count)]
    return [
        TrialRecord(
            task_id=f"t{number // rollouts}",
            category=None,
            candidate_id=candidate,
            rollout=number % rollouts,
            attempt=Attempt(
                number=1,
                status=Status.COMPLETED,
                started_at=0.0,
                elapsed_s=0.0,
                scores=(
                    Score(
                        scorer="label",
                        value=float(meant == given),
                        details={"expected": meant, "label": given},
                    ),
                ),
            ),
        )
        for number, (meant, given) in enumerate(listed)
    ]


def _of(meant: Sequence[str], given: Sequence[str | None]) -> Classification:
    (only,) = classifications(_records(Counter(zip(meant, given, strict=True))), {})
    return only


def test_a_suite_with_a_few_labels_is_no_test_of_a_classifier() -> None:
    labelled = _records({("a", "a"): 3, ("b", "a"): 2})
    unlabelled = [
        replace(record, task_id=f"u{n}", attempt=replace(record.attempt, scores=()))
        for n in range(6)
        for record in labelled[:1]
    ]
    assert classifications(labelled + unlabelled[:5], {}) != ()
    assert classifications(labelled + unlabelled, {}) == ()


def test_the_numbers_of_sixty_labels_are_those_of_scikit_learn() -> None:
    (mail,) = classifications(_records(MAIL), {})
    assert mail.labels == ("ham", "offer", "spam")
    assert mail.confusion == ((29, 2, 4, 3), (0, 11, 0, 1), (0, 1, 7, 2))
    assert mail.accuracy.mean == pytest.approx(0.783333, abs=1e-6)
    assert mail.macro_f1.value == pytest.approx(0.792831, abs=1e-6)
    assert mail.mcc.value == pytest.approx(0.671384, abs=1e-6)
    assert [each.trials for each in mail.by_label] == [38, 12, 10]
    for name, values in {
        "precision": (1.0, 0.785714, 0.636364),
        "recall": (0.763158, 0.916667, 0.7),
        "f1": (0.865672, 0.846154, 0.666667),
    }.items():
        got = [getattr(each, name).value for each in mail.by_label]
        assert got == pytest.approx(values, abs=1e-6)


def test_the_example_of_classification_report() -> None:
    report = _of(list("01222"), list("00221"))
    assert report.accuracy.mean == pytest.approx(0.6)
    assert report.macro_f1.value == pytest.approx(0.488889, abs=1e-6)
    assert report.mcc.value == pytest.approx(0.400892, abs=1e-6)
    assert [each.recall.value for each in report.by_label] == pytest.approx([1, 0, 0.666667])


def test_the_examples_of_f1_score_confusion_matrix_and_matthews_corrcoef() -> None:
    assert _of(list("012012"), list("021001")).macro_f1.value == pytest.approx(0.266667, abs=1e-6)
    animals = _of(
        ["cat", "ant", "cat", "cat", "ant", "bird"], ["ant", "ant", "cat", "cat", "ant", "cat"]
    )
    assert [row[:-1] for row in animals.confusion] == [(2, 0, 0), (0, 0, 1), (1, 0, 2)]
    assert _of(list("+++-"), list("+-++")).mcc.value == pytest.approx(-0.333333, abs=1e-6)


def test_every_number_lies_in_its_interval() -> None:
    (mail,) = classifications(_records(MAIL), {})
    figures = [mail.macro_f1, mail.mcc]
    figures += [f for each in mail.by_label for f in (each.precision, each.recall, each.f1)]
    for figure in figures:
        assert figure.interval is not None
        assert figure.value is not None
        assert 0 <= figure.interval.low <= figure.value <= figure.interval.high <= 1
    assert mail.macro_f1.interval is not None
    assert mail.macro_f1.interval.method == "BCa bootstrap"
    spam = mail.by_label[2]
    assert spam.recall.interval is not None
    assert "wilson" in spam.recall.interval.method


def test_the_interval_is_that_of_scipy() -> None:
    np, stats = pytest.importorskip("numpy"), pytest.importorskip("scipy.stats")
    from bakeoff.stats.classification import matthews

    units = [Counter({cell: 1}) for cell, count in MAIL.items() for _ in range(count)]
    sample = Sample(units, ["ham", "offer", "spam"])
    tables = np.array([Sample([unit], ["ham", "offer", "spam"]).table for unit in units])

    def mcc(numbers: object) -> object:
        return matthews(tables[numbers].sum(axis=0))

    ours = sample.measured(matthews).interval
    theirs = stats.bootstrap(
        (np.arange(len(units)),), mcc, vectorized=False, n_resamples=2000, method="BCa",
        random_state=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert ours is not None
    assert ours.low == pytest.approx(theirs.low, abs=0.02)
    assert ours.high == pytest.approx(theirs.high, abs=0.02)


def test_the_order_of_records_changes_nothing() -> None:
    records = _records(MAIL)
    assert classifications(records, {}) == classifications(records[::-1], {})


def test_rollouts_of_a_task_and_tasks_of_a_group_are_drawn_together() -> None:
    cells: dict[tuple[str, str | None], int] = {
        ("a", "a"): 40,
        ("a", "b"): 20,
        ("b", "b"): 40,
        ("b", "a"): 20,
    }
    (alone,) = classifications(_records(cells), {})
    (by_task,) = classifications(_records(cells, rollouts=5), {})
    groups = {f"t{number}": f"g{number // 5}" for number in range(120)}
    (by_group,) = classifications(_records(cells), groups)
    assert alone.confusion == by_task.confusion == by_group.confusion
    assert by_task.mcc == by_group.mcc
    assert alone.mcc.interval is not None
    assert by_group.mcc.interval is not None
    narrow = alone.mcc.interval.high - alone.mcc.interval.low
    assert by_group.mcc.interval.high - by_group.mcc.interval.low > 1.5 * narrow


def test_what_cannot_be_known_is_null_with_a_reason() -> None:
    perfect = _of(["a", "b"] * 10, ["a", "b"] * 10)
    assert perfect.mcc.value == 1
    assert perfect.mcc.interval is None
    assert "too few mistakes" in (perfect.mcc.reason or "")
    one_sided = _of(["a"] * 9 + ["b"], ["a"] * 10)
    assert one_sided.by_label[1].precision.value is None
    assert one_sided.by_label[1].precision.reason == "no answer gave it"
    (single,) = classifications(_records({("a", "b"): 1}), {})
    assert single.mcc.interval is None


def test_without_labels_there_is_no_classification() -> None:
    assert classifications([], {}) == ()
    (record,) = _records({("a", "a"): 1})
    assert classifications([record], {}) == ()  # one label alone


def test_a_run_says_how_each_candidate_classified(tmp_path: Path) -> None:
    (tmp_path / "mail.csv").write_text(
        "id,text,label\na,win money,spam\nb,see you,ham\nc,buy this,spam\nd,hello,ham\n"
    )
    (tmp_path / "mail.toml").write_text(
        """
models = ["scripted/says-spam", "scripted/echo"]
scorers = [{ scorer = "label", settings = { labels = ["spam", "ham"] } }]
[[data]]
path = "mail.csv"
"""
    )
    model = bakeoff.ModelSpec(
        provider="scripted", name="says-spam", settings={"replies": ["Label: spam"]}
    )
    run = bakeoff.run(tmp_path / "mail.toml", models=[model], output=tmp_path / "runs")
    (only,) = run.summary().classification
    assert only.labels == ("ham", "spam")
    assert only.confusion == ((0, 2, 0), (0, 2, 0))
    assert only.mcc.value == 0
    page, text = (
        bakeoff.report(run, formats=[form])[0].read_text(encoding="utf-8")
        for form in ("html", "md")
    )
    assert "<h2>Labels</h2>" in page
    assert "## Labels of" in text


def test_a_suite_of_choices_has_the_same_tables(tmp_path: Path) -> None:
    tasks = [
        bakeoff.Task(
            id=f"t{number}",
            messages=(bakeoff.Message(role="user", content=f"Answer: {given}"),),
            target=meant,
            scorers=(bakeoff.ScorerSpec(name="choice"),),
        )
        for number, (meant, given) in enumerate([("A", "A"), ("A", "B"), ("B", "B"), ("B", "B")])
    ]
    run = bakeoff.run(tasks, models=["scripted/echo"], output=tmp_path / "runs")
    (only,) = run.summary().classification
    assert only.confusion == ((1, 1, 0), (0, 2, 0))


def test_the_run_file_of_the_guide_classifies_the_reviews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks_of_guide = blocks(ROOT / "docs" / "guides" / "classification.md")
    (block,) = (block for block in blocks_of_guide if block.language == "toml")
    shutil.copy(ROOT / "examples" / "data" / "reviews.csv", tmp_path)
    (tmp_path / "reviews.toml").write_text(block.text)
    monkeypatch.chdir(tmp_path)
    rules = [
        {"match": "not|broke|nobody|pieces|cheap|none", "reply": "Negative."},
        {"match": "again|best|loves|worth|quick|good", "reply": "Positive."},
    ]
    model = bakeoff.ModelSpec(provider="scripted", name="words", settings={"rules": rules})
    (only,) = bakeoff.run("reviews.toml", models=[model]).summary().classification
    assert only.labels == ("negative", "neutral", "positive")
    assert [each.trials for each in only.by_label] == [8, 8, 8]
    assert only.mcc.value is not None
    assert only.mcc.value > 0
