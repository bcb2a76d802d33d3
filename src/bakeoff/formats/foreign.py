"""Files of other tools: what they are, and which of our lines does the same."""

import re
from collections.abc import Mapping
from pathlib import Path

from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.formats.text.yaml import parse_yaml

_INSPECT = re.compile(r"^\s*(?:from|import)\s+inspect_ai\b", re.MULTILINE)
_HUB_NAME = re.compile(r"hf_dataset\(\s*(?:path\s*=\s*)?[\"']([\w./-]+)[\"']")
_LOCAL_NAME = re.compile(r"(?:csv|json)_dataset\(\s*[\"']([\w./-]+)[\"']")
_GUIDE = "side by side: docs/guides/coming-from-other-tools.md"


def is_foreign(path: Path) -> bool:
    """Whether *path* is a file of promptfoo, Inspect or lm-evaluation-harness."""
    return hand_over(path) is not None


def hand_over(path: Path) -> str | None:
    """Return what to type instead of the file of another tool at *path*; None where it is none."""
    ending = path.suffix.lower()
    try:
        if ending == ".py" and _INSPECT.search(text := path.read_text(encoding="utf-8")):
            return _inspect(path, text)
        if ending in {".yaml", ".yml"}:
            return _of_yaml(path, parse_yaml(path.read_bytes(), source=str(path))[0])
    except (OSError, UnicodeDecodeError, UsageError):
        return None
    return None


def _of_yaml(path: Path, data: Mapping[str, Json]) -> str | None:
    if "providers" in data or ("prompts" in data and "tests" in data):
        return _promptfoo(path, data)
    if data.keys() & {"doc_to_text", "doc_to_target", "dataset_path"}:
        return _lm_eval(path, data)
    return None


def _promptfoo(path: Path, data: Mapping[str, Json]) -> str:
    tests, prompts = data.get("tests"), data.get("prompts")
    rows = tests.removeprefix("file://") if isinstance(tests, str) else "tests.csv"
    listed = prompts if isinstance(prompts, list) else [prompts]
    given = [p.removeprefix("file://") for p in listed if isinstance(p, str)]
    options = "".join(f" --prompt {_quoted(prompt)}" for prompt in given) or " --prompt FILE"
    models = "".join(f" --model {model}" for model in _models(data.get("providers")))
    first = (
        ""
        if isinstance(tests, str)
        else f"put the `vars` of the tests into {rows}, one column each, and their expected answers into another, then "
    )
    return f"{path}: this is a promptfoo config; {first}run: bakeoff run {rows}{options}{models} ({_GUIDE})"


def _models(providers: Json) -> list[str]:
    """Return promptfoo's `openai:gpt-4.1-mini` as the model that it is here."""
    listed = providers if isinstance(providers, list) else [providers]
    names = [entry.get("id") if isinstance(entry, Mapping) else entry for entry in listed]
    models = []
    for name in names:
        if isinstance(name, str) and ":" in name:
            provider, _, model = name.partition(":")
            models.append(f"{provider}/{model.removeprefix('chat:').removeprefix('messages:')}")
    return models or ["PROVIDER/NAME"]


def _inspect(path: Path, text: str) -> str:
    hub, local = _HUB_NAME.search(text), _LOCAL_NAME.search(text)
    rows = f"hf://{hub[1]}" if hub else local[1] if local else "DATA.csv"
    return (
        f"{path}: this is a task of Inspect, in Python, which is not run here; its data set is: "
        f"bakeoff run {rows} --map prompt=input --expected target --model PROVIDER/NAME ({_GUIDE})"
    )


def _lm_eval(path: Path, data: Mapping[str, Json]) -> str:
    name, split = data.get("dataset_path"), data.get("test_split") or data.get("validation_split")
    subset = data.get("dataset_name")
    where = "/".join(str(part) for part in (subset, split) if part)
    rows = f"hf://{name}{f':{where}' if where else ''}" if name else "DATA.jsonl"
    prompt, target = data.get("doc_to_text"), data.get("doc_to_target")
    options = f" --prompt {_quoted(_template(prompt))}" if isinstance(prompt, str) else ""
    column = re.fullmatch(r"\s*(?:\{\{\s*)?(\w+)(?:\s*\}\})?\s*", target) if isinstance(target, str) else None  # fmt: skip
    options += f" --expected {column[1]}" if column else ""
    return (
        f"{path}: this is a task of lm-evaluation-harness; run: bakeoff run {rows}{options} "
        f"--model PROVIDER/NAME ({_GUIDE})"
    )


def _template(text: str) -> str:
    return f"{{{{{text}}}}}" if text.isidentifier() else text


def _quoted(text: str) -> str:
    if re.fullmatch(r"[\w./-]+", text):
        return text
    return "'" + text.replace("\n", "\\n").replace("'", "'\\''") + "'"
