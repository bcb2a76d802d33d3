"""Files of other tools are handed over: the message has the line that does the same, and it runs."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.formats.detect import read_path
from support.cli import bakeoff as command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "coming-from-other-tools.md").read_text(encoding="utf-8")
THEIRS = re.findall(r"^```(?:yaml|text)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
OURS = re.findall(r"^```console\n\$ (.*)\n```", PAGE, re.MULTILINE)
SAID = re.findall(
    r"^```console\n\$ bakeoff run (\S+)\n(bakeoff: error: .*)\n```", PAGE, re.MULTILINE
)
RUN_FILES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
NAMES = ("promptfooconfig.yaml", "task.py", "questions.yaml")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "data" / "questions.csv", tmp_path)
    Path("short.txt").write_text("In one word: {{question}}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (0, "bakeoff run questions.csv --prompt short.txt --prompt 'Think step by step. {{question}}' "
            "--model openai/gpt-4.1-mini --model ollama/qwen3:8b"),
        (1, "bakeoff run questions.csv --map prompt=input --expected target --scorer includes --model"),
        (2, r"bakeoff run hf://me/questions:test --prompt $'Question: {{question}}\nAnswer:' --expected answer"),
    ],
)  # fmt: skip
def test_the_message_has_the_line_that_does_the_same(folder: Path, number: int, line: str) -> None:
    path = folder / NAMES[number]
    path.write_text(THEIRS[number])
    with pytest.raises(UsageError, match="side by side") as raised:
        read_path(path)
    assert line in str(raised.value)


_PROMPTFOO = """
prompts:
  - file://prompts/*.txt
  - file://chat.json
  - {id: file://named.txt, label: named}
  - {raw: "Say {{x}}"}
providers:
  - openai:gpt-4.1-mini
  - openai:responses:gpt-5
  - anthropic:messages:claude-sonnet-4-5
  - {id: "ollama:chat:qwen3:8b", config: {temperature: 0}}
  - file://own.py
  - bedrock:anthropic.claude-3
tests: TESTS
defaultTest: {assert: [{type: contains-all, value: [a]}, {type: llm-rubric, value: polite}]}
"""
_HANDED_OVER = [
    ("a.yaml", _PROMPTFOO.replace("TESTS", "file://q.csv"), [
        "bakeoff run q.csv --prompt FILE --prompt named.txt --prompt 'Say {{x}}' "
        "--model openai/gpt-4.1-mini --model openai-responses/gpt-5 "
        "--model anthropic/claude-sonnet-4-5 --model ollama/qwen3:8b ",
        "one --prompt for each of prompts/*.txt", "chat.json makes messages",
        "for file://own.py, bedrock:anthropic.claude-3 see docs/guides/models.md",
        """--scorer 'contains-all{values=["a"]}' --scorer 'judge{rubric="polite"}';""",
    ]),
    ("a.yaml", _PROMPTFOO.replace("TESTS", "[{vars: {x: 1}}]"), [
        "put the `vars` of the tests into tests.csv", "bakeoff run tests.csv",
    ]),
    ("a.yaml", _PROMPTFOO.replace("TESTS", "[file://a.csv, file://b.csv]"), [
        "name a.csv, b.csv as [[data]] of a run file, then run: bakeoff run RUN.toml",
    ]),
    ("a.yaml", _PROMPTFOO.replace("TESTS", "huggingface://datasets/me/rows?split=test&subset=de"), [
        "bakeoff run hf://me/rows:de/test",
    ]),
    ("a.yaml", _PROMPTFOO.replace("TESTS", "https://docs.google.com/spreadsheets/d/x"), [
        "save https://docs.google.com/spreadsheets/d/x as tests.csv",
    ]),
    ("a.yaml", """
prompts: ["{{q}}"]
providers: [openai:gpt-5]
tests: q.csv
defaultTest:
  assert:
    - {type: icontains, value: "{{answer}}"}
    - {type: regex, value: "[0-9]{4}"}
    - {type: contains, value: x}
    - {type: latency, threshold: 1500}
    - {type: cost, threshold: 0.01}
    - {type: python, value: "1"}
""", [
        """--scorer includes --scorer 'pattern{pattern="[0-9]{4}"}' """,
        """--scorer 'contains-any{values=["x"]}' --scorer 'latency{max_s=1.5}' --scorer 'cost{max_usd=0.01}';""",
        "a check in Python is a scorer of your own",
    ]),
    ("a.yaml", _PROMPTFOO.replace("TESTS", "[{vars: {x: 1}, assert: [{type: equals, value: b}]}]"), [
        "of the checks of single tests, equals is exact: a --scorer, or `scorers` of a test",
    ]),
    ("a.json", '{"prompts": ["{{x}}"], "providers": ["openai:gpt-5"], "tests": "t.csv"}', [
        "bakeoff run t.csv --prompt '{{x}}' --model openai/gpt-5",
    ]),
    ("promptfooconfig.ts", "export default {}", ["a promptfoo config that is a program"]),
    ("a.py", """
from inspect_ai import Task
from inspect_ai.dataset import FieldSpec, csv_dataset
Task(dataset=csv_dataset("q.csv", FieldSpec(input="question", target="letter", id="n")))
""", ["bakeoff run q.csv --map prompt=question --expected letter --map id=n --model"]),
    ("a.py", """
from inspect_ai.dataset import hf_dataset
hf_dataset(path="me/rows", name="de", split="validation", sample_fields=to_sample)
solver=multiple_choice()
""", ["bakeoff run hf://me/rows:de/validation", "score it with 'choice'"]),
    ("a.py", "from inspect_ai.dataset import Sample\nSample(input='x', target='y')\n", [
        "put its samples into DATA.csv, with columns input and target",
    ]),
    ("a.yaml", r"""
task: arc
dataset_path: allenai/ai2_arc
dataset_name: ARC-Easy
output_type: multiple_choice
test_split: test
process_docs: !function utils.process
doc_to_text: "Question: {{question}}\nIt's:"
doc_to_target: "{{choices.label.index(answerKey)}}"
""", [
        r"hf://allenai/ai2_arc:ARC-Easy/test --prompt $'Question: {{question}}\nIt\'s:'",
        "its target is computed", "score it with 'choice'",
    ]),
    ("a.yaml", "task: x\ndataset_path: me/x\ndoc_to_text: !function u.f\ndoc_to_target: '{{a}}'\n", [
        "bakeoff run hf://me/x --expected a", "what u.f writes is a --prompt",
    ]),
    ("a.yaml", "task: x\ninclude: _base\ndataset_name: de\n", ["is in _base"]),
    ("a.yaml", """
task: x
dataset_path: json
dataset_kwargs: {data_files: {test: [rows.jsonl]}}
test_split: test
doc_to_text: question
doc_to_target: answer
metric_list: [{metric: exact_match, ignore_case: true, ignore_punctuation: true}]
""", ["bakeoff run rows.jsonl --prompt '{{question}}' --expected answer "
      "--scorer 'exact{ignore_case=true, ignore_punctuation=true}' --model"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "said"), _HANDED_OVER)
def test_files_as_people_write_them_are_handed_over(
    folder: Path, name: str, text: str, said: list[str]
) -> None:
    Path(name).write_text(text)
    with pytest.raises(UsageError, match="side by side") as raised:
        read_path(folder / name)
    for part in said:
        assert part in str(raised.value)


def test_a_prompt_of_several_lines_is_a_word_that_a_shell_reads_back(folder: Path) -> None:
    text = "One:\n\\n {{x}}\nit's"
    Path("a.yaml").write_text(
        json.dumps({"task": "x", "dataset_path": "me/x", "doc_to_text": text})
    )
    with pytest.raises(UsageError) as raised:
        read_path(folder / "a.yaml")
    word = str(raised.value).partition("--prompt ")[2].partition(" --model")[0]
    shown = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert shown.stdout.decode() == text


@pytest.mark.parametrize("text", ["a: 1", "- 1", ": :", "print('hello')"])
def test_any_other_file_is_unknown_as_before(folder: Path, text: str) -> None:
    for name in ("other.yaml", "other.py"):
        (folder / name).write_text(text)
        with pytest.raises(UsageError, match="unknown kind of file"):
            read_path(folder / name)


def test_the_page_shows_what_is_said_of_each_of_their_files(folder: Path) -> None:
    assert [name for name, _ in SAID] == list(NAMES)
    for (name, said), text in zip(SAID, THEIRS, strict=True):
        Path(name).write_text(text)
        ended = command("run", name)
        assert (ended.code, ended.err.strip()) == (1, said)


@pytest.mark.parametrize("line", OURS)
def test_each_of_our_lines_runs(folder: Path, line: str) -> None:
    words = shlex.split(line)
    at = words.index("--model")
    done = command(*words[1:at], "--model", "scripted/echo", "--limit", "3", "--json")
    assert done.code == 0, done.err


@pytest.mark.parametrize("text", RUN_FILES)
def test_each_of_our_run_files_runs(folder: Path, text: str) -> None:
    Path("run.toml").write_text(text)
    done = command("run", "run.toml", "--model", "scripted/echo", "--limit", "3", "--json")
    assert done.code == 0, done.err
