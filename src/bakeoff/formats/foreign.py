"""Files of other tools: what they are, and which of our lines does the same."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.formats.data.columns import OUR_SCORERS
from bakeoff.formats.text.yaml import parse_yaml

_GUIDE = "side by side: docs/guides/coming-from-other-tools.md"
_PROGRAMS = frozenset({".js", ".cjs", ".mjs", ".ts", ".cts", ".mts"})
_FUNCTION = re.compile(r"!function\s+([\w./-]+)")  # a YAML tag of lm-evaluation-harness


def is_foreign(path: Path) -> bool:
    """Whether *path* is a file of promptfoo, Inspect or lm-evaluation-harness."""
    return hand_over(path) is not None


def hand_over(path: Path) -> str | None:
    """Return what to type instead of the file of another tool at *path*; None where it is none."""
    ending = path.suffix.lower()
    try:
        if ending == ".py" and _INSPECT.search(text := path.read_text(encoding="utf-8")):
            return f"{path}: {_inspect(text)} ({_GUIDE})"
        if ending in _PROGRAMS and path.stem == "promptfooconfig" and path.is_file():
            return (
                f"{path}: this is a promptfoo config that is a program; run: bakeoff run TESTS.csv "
                f"--prompt FILE --model PROVIDER/NAME ({_GUIDE})"
            )
        if ending == ".json":
            return _of_config(path, json.loads(path.read_bytes()))
        if ending in {".yaml", ".yml"}:
            text = _FUNCTION.sub(r'"!function \1"', path.read_text(encoding="utf-8"))
            return _of_config(path, parse_yaml(text.encode(), source=str(path))[0])
    except (OSError, ValueError, RecursionError, UsageError):
        return None
    return None


def _of_config(path: Path, data: Json) -> str | None:
    if not isinstance(data, Mapping):
        return None
    said = None
    if data.keys() & {"providers", "targets"} or {"prompts", "tests"} <= data.keys():
        said = _promptfoo(data)
    elif data.keys() & _OF_LM_EVAL or ("task" in data and data.keys() & _BESIDE_A_TASK):
        said = _lm_eval(data)
    return said and f"{path}: {said} ({_GUIDE})"


# --- promptfoo ------------------------------------------------------------------------------------

_OUR_PROVIDERS: Mapping[str, str] = {  # what promptfoo calls a provider, and what it is called here
    **{name: name for name in (
        "anthropic", "azure", "cerebras", "cohere", "deepseek", "google", "groq", "huggingface",
        "mistral", "ollama", "openai", "openrouter", "perplexity", "xai",
    )},
    "azureopenai": "azure", "togetherai": "together", "fireworks": "fireworks",
}  # fmt: skip
_KINDS = ("chat", "completion", "messages", "text-generation", "completions")


def _promptfoo(data: Mapping[str, Json]) -> str:
    rows, first = _rows(data.get("tests"))
    options, left = [], []
    for prompt in _prompts(data.get("prompts")):
        if prompt.endswith((".py", ".js", ".json", ".yaml")) or ".py:" in prompt:
            left.append(f"{prompt} makes messages: write its texts as [[prompts]] of a run file")
        elif "*" in prompt:
            options.append("--prompt FILE")
            left.append(f"one --prompt for each of {prompt}")
        else:
            options.append(f"--prompt {_quoted(prompt)}")
    names = _listed(data.get("providers", data.get("targets")))
    models = {name: _model(name) for name in names}
    options += [f"--model {model}" for model in models.values() if model] or [
        "--model PROVIDER/NAME"
    ]
    options += _default_scorers(data)
    if other := [name for name, model in models.items() if model is None]:
        left.append(f"for {', '.join(other)} see docs/guides/models.md")
    left += _checks(data)
    run = " ".join(["bakeoff run", rows, *options])
    notes = f"; {'; '.join(left)}" if left else ""
    return f"this is a promptfoo config; {first}run: {run}{notes}"


def _rows(tests: Json) -> tuple[str, str]:
    """Return the data set that *tests* are, and what is to be done before it can be read."""
    named = [
        test for test in (tests if isinstance(tests, list) else [tests]) if isinstance(test, str)
    ]
    if not named or len(named) < (len(tests) if isinstance(tests, list) else 1):
        return "tests.csv", (
            "put the `vars` of the tests into tests.csv, one column each, and their expected answers "
            "into another, then "
        )
    if len(named) > 1:
        return "RUN.toml", f"name {', '.join(map(_bare, named))} as [[data]] of a run file, then "
    (name,) = named
    address = urlsplit(name)
    if address.scheme == "huggingface":
        given = parse_qs(address.query)
        part = [*given.get("subset", given.get("config", [])), *given.get("split", [])]
        owner = address.path.strip("/")
        return f"hf://{owner}{':' + '/'.join(part) if part else ''}", ""
    if address.scheme in {"http", "https"}:
        return "tests.csv", f"save {name} as tests.csv, then "
    return _quoted(_bare(name)), ""


def _prompts(prompts: Json) -> Iterator[str]:
    """Yield the files and texts of *prompts*."""
    for entry in prompts if isinstance(prompts, list) else [prompts]:
        text = entry.get("raw") or entry.get("id") if isinstance(entry, Mapping) else entry
        if isinstance(text, str):
            yield _bare(text)


def _listed(providers: Json) -> list[str]:
    listed = providers if isinstance(providers, list) else [providers]
    names = [entry.get("id") or next(iter(entry), "") if isinstance(entry, Mapping) else entry for entry in listed]  # fmt: skip
    return [name for name in names if isinstance(name, str) and name]


def _model(name: str) -> str | None:
    """Return promptfoo's `openai:gpt-4.1-mini` as the model that it is here, if it is one."""
    provider, _, model = name.partition(":")
    kind, _, rest = model.partition(":")
    if provider not in _OUR_PROVIDERS or not model:
        return None
    if (provider, kind) == ("openai", "responses"):
        return f"openai-responses/{rest}"
    return f"{_OUR_PROVIDERS[provider]}/{rest if kind in _KINDS and rest else model}"


def _default_scorers(data: Mapping[str, Json]) -> list[str]:
    """Return `--scorer` for each check that a config makes of every test."""
    table = data.get("defaultTest")
    return [f"--scorer {_quoted(name)}" for name in filter(None, map(_scorer, _asserted(table)))]


def _asserted(table: Json) -> list[Mapping[str, Json]]:
    checks = table.get("assert") if isinstance(table, Mapping) else None
    listed = checks if isinstance(checks, list) else []
    return [check for check in listed if isinstance(check, Mapping)]


def _scorer(check: Mapping[str, Json]) -> str | None:
    """Return the scorer that does the same as *check*, as `--scorer` takes it; None where none does."""
    name, value, bound = OUR_SCORERS.get(str(check.get("type"))), check.get("value"), check.get("threshold")  # fmt: skip
    if isinstance(value, str) and "{{" in value:
        return name  # from the row: its expected answer
    settings: dict[str, Json] = {}
    match name:
        case "judge" if isinstance(value, str):
            settings = {"rubric": value}
        case "pattern" if isinstance(value, str):
            settings = {"pattern": value}
        case "includes" | "contains-any" | "contains-all" | "starts-with" if value:
            name = "contains-any" if name == "includes" else name
            settings = {"values": value if isinstance(value, list) else [value]}
        case "latency" if isinstance(bound, int | float):
            settings = {"max_s": bound / 1000}
        case "cost" if isinstance(bound, int | float):
            settings = {"max_usd": bound}
    written = ", ".join(f"{key}={json.dumps(v)}" for key, v in settings.items())
    return f"{name}{{{written}}}" if name and written else name


def _checks(data: Mapping[str, Json]) -> Iterator[str]:
    """Yield what becomes of the checks of single tests, and of those that are programs."""
    tests = data.get("tests")
    single = [
        check for test in (tests if isinstance(tests, list) else []) for check in _asserted(test)
    ]
    kinds = dict.fromkeys(str(check.get("type")) for check in single)
    if ours := [f"{kind} is {OUR_SCORERS[kind]}" for kind in kinds if kind in OUR_SCORERS]:
        yield f"of the checks of single tests, {', '.join(ours)}: a --scorer, or `scorers` of a test"
    every = kinds.keys() | {check.get("type") for check in _asserted(data.get("defaultTest"))}
    if every & {"javascript", "python"}:
        yield "a check in Python is a scorer of your own"


def _bare(name: str) -> str:
    return name.removeprefix("file://")


# --- Inspect --------------------------------------------------------------------------------------

_INSPECT = re.compile(r"^\s*(?:from|import)\s+inspect_ai\b", re.MULTILINE)
_HUB_NAME = re.compile(r"hf_dataset\(\s*(?:path\s*=\s*)?[\"']([\w./-]+)[\"']([^()]*)")
_LOCAL_NAME = re.compile(r"(?:csv|json)_dataset\(\s*(?:\w+\s*=\s*)?[\"']([\w./-]+)[\"']")
_FIELDS = re.compile(r"FieldSpec\(([^()]*)\)")
_KEYWORD = re.compile(r"(\w+)\s*=\s*[\"']([^\"']+)[\"']")
_IN_THE_CODE = re.compile(r"\bSample\s*\(")
_SCORER = re.compile(r"\bscorer\s*=\s*\[?\s*(\w+)\(")
_INSPECT_SCORERS: Mapping[str, str] = {
    "includes": "includes", "match": "ends-with", "exact": "exact", "f1": "token-f1", "choice": "choice",
    "model_graded_qa": "judge", "model_graded_fact": "judge",
}  # fmt: skip
_CHOICES = re.compile(r"\bmultiple_choice\s*\(")


def _inspect(text: str) -> str:
    hub, local = _HUB_NAME.search(text), _LOCAL_NAME.search(text)
    fields = {"input": "input", "target": "target"}
    if given := _FIELDS.search(text):
        fields |= dict(_KEYWORD.findall(given[1]))
    options = f"--map prompt={fields['input']} --expected {fields['target']}"
    if fields.get("id"):
        options += f" --map id={fields['id']}"
    if (scorer := _SCORER.search(text)) and scorer[1] in _INSPECT_SCORERS:
        options += f" --scorer {_INSPECT_SCORERS[scorer[1]]}"
    said = "this is a task of Inspect, in Python, which is not run here; "
    if hub:
        keywords = dict(_KEYWORD.findall(hub[2]))
        part = [keywords[name] for name in ("name", "split") if name in keywords]
        rows = f"hf://{hub[1]}{':' + '/'.join(part) if part else ''}"
    elif local:
        rows = local[1]
    elif _IN_THE_CODE.search(text):
        rows, said = (
            "DATA.csv",
            said + "put its samples into DATA.csv, with columns input and target; ",
        )
    else:
        rows = "DATA.csv"
    letter = ""
    if _CHOICES.search(text):
        letter = "; ask for the letter in a --prompt with the choices, and score it with 'choice'"
    columns = ""
    if not given and (hub or local) and _IN_THE_CODE.search(text):
        columns = "; the columns that its function makes samples of go there instead"
    return f"{said}its data set is: bakeoff run {rows} {options} --model PROVIDER/NAME{columns}{letter}"


# --- lm-evaluation-harness ------------------------------------------------------------------------

_OF_LM_EVAL = frozenset({"doc_to_text", "doc_to_target", "dataset_path"})
_BESIDE_A_TASK = frozenset({
    "dataset_name", "include", "output_type", "metric_list", "num_fewshot", "group",
    "aggregate_metric_list",
})  # fmt: skip
_LOADERS = frozenset({"json", "csv", "parquet", "text"})  # of files that lie here
_COLUMN = re.compile(r"\s*(?:\{\{\s*)?(\w+)(?:\s*\}\})?\s*")


def _lm_eval(data: Mapping[str, Json]) -> str:
    split = data.get("test_split") or data.get("validation_split")
    options, left = "", []
    prompt, target = data.get("doc_to_text"), data.get("doc_to_target")
    if isinstance(prompt, str) and prompt.startswith("!function"):
        left.append(
            f"what {prompt.removeprefix('!function ')} writes is a --prompt with {{{{columns}}}}"
        )
    elif isinstance(prompt, str):
        options += f" --prompt {_quoted(f'{{{{{prompt}}}}}' if prompt.isidentifier() else prompt)}"
    if isinstance(target, str) and (column := _COLUMN.fullmatch(target)):
        options += f" --expected {column[1]}"
    elif target is not None:
        left.append(
            "its target is computed: write it into a column of its own, and name that with --expected"
        )
    options += _metric(data.get("metric_list"))
    if data.get("output_type") == "multiple_choice" or "doc_to_choice" in data:
        left.append("ask for the letter of the choice, and score it with 'choice'")
    if isinstance(data.get("include"), str):
        left.append(f"what is missing here is in {data['include']}")
    notes = f"; {'; '.join(left)}" if left else ""
    run = f"bakeoff run {_lm_eval_rows(data, split)}{options} --model PROVIDER/NAME"
    return f"this is a task of lm-evaluation-harness; run: {run}{notes}"


def _metric(metrics: Json) -> str:
    """Return the scorer that does the same as the metric `exact_match`, where that is used."""
    for metric in metrics if isinstance(metrics, list) else []:
        if isinstance(metric, Mapping) and metric.get("metric") == "exact_match":
            kept = [key for key in ("ignore_case", "ignore_punctuation") if metric.get(key)]
            settings = ", ".join(f"{key}=true" for key in kept)
            return f" --scorer {_quoted(f'exact{{{settings}}}' if settings else 'exact')}"
    return ""


def _lm_eval_rows(data: Mapping[str, Json], split: Json) -> str:
    name, subset = data.get("dataset_path"), data.get("dataset_name")
    if name in _LOADERS:
        settings = data.get("dataset_kwargs")
        files = settings.get("data_files") if isinstance(settings, Mapping) else None
        files = files.get(str(split)) if isinstance(files, Mapping) else files
        file = files[0] if isinstance(files, list) and files else files
        return file if isinstance(file, str) else f"DATA.{'jsonl' if name == 'json' else name}"
    where = "/".join(str(part) for part in (subset, split) if part)
    return f"hf://{name}{f':{where}' if where else ''}" if name else "DATA.jsonl"


def _quoted(text: str) -> str:
    """Return *text* as a word of a shell on one line."""
    if re.fullmatch(r"[\w./-]+", text):
        return text
    if "\n" in text:
        return "$'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
    return "'" + text.replace("'", "'\\''") + "'"
