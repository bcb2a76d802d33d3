"""Which format a file or a folder is in: decided here and nowhere else, and read by its reader.

The readers are imported when they are needed: a suite of prompts brings no other format with it, and
a reader whose files name other files may ask here what those are.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff._lib.phrasing import near, near_file
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec, Source
from bakeoff.core.task import Suite, Task
from bakeoff.core.values import Json
from bakeoff.formats.data.columns import DataOptions
from bakeoff.formats.text.convert import as_given, placed_as_given
from bakeoff.formats.text.json import read_json
from bakeoff.formats.text.problems import Problems
from bakeoff.formats.text.toml import line_of, read_toml

if TYPE_CHECKING:
    from bakeoff.formats.data.rows import DataFile

RunSource = str | Path | Suite | Sequence[Task] | RunSpec

INSTRUCTION, SETTINGS = "instruction.md", "task.toml"  # of a task folder, ours or Harbor's
PREPARED_META = "tb_meta.json"
OLD_TERMINAL_BENCH = "task.yaml"
_TASK_FILES = (INSTRUCTION, SETTINGS, PREPARED_META, OLD_TERMINAL_BENCH)
_DIALOGUE_ENDINGS = (".toml", ".json")
HUB = "hf://"
NO_DATA_OPTIONS = DataOptions()
_BEGINNING = 1 << 16  # bytes
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class Format(Enum):
    """What a file or a folder that a person names is."""

    SUITE = auto()
    DIALOGUE = auto()  # one, or a folder of them
    RUN_FILE = auto()
    ROLLOUTS = auto()
    AGENT_BENCHMARK = auto()
    BENCHMARK_AGENT = auto()
    MARKDOWN_TASK = auto()
    TASK_FOLDER = auto()  # one, or a folder of them
    DELIMITED = auto()  # CSV and TSV
    JSON_LINES = auto()
    JSON_ROWS = auto()  # a list of objects
    PARQUET = auto()
    FOREIGN = auto()  # of another tool
    UNKNOWN = auto()


DATA_SETS = frozenset({Format.DELIMITED, Format.JSON_LINES, Format.JSON_ROWS, Format.PARQUET})
_BY_ENDING = {
    ".csv": Format.DELIMITED,
    ".tsv": Format.DELIMITED,
    ".tab": Format.DELIMITED,
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".parquet": Format.PARQUET,
    ".md": Format.MARKDOWN_TASK,
}

_SPREADSHEETS = frozenset({".xlsx", ".xls", ".xlsm", ".ods", ".numbers"})


class TaskFolderFormat(Enum):
    """What the folder of one coding task is."""

    NATIVE = auto()
    HARBOR = auto()
    PREPARED = auto()
    OLD_TERMINAL_BENCH = auto()


def read_source(
    source: RunSource,
    overrides: Mapping[str, str] | None = None,
    data: DataOptions = NO_DATA_OPTIONS,
) -> RunSpec:
    """Return what a person wants to run as a spec: tasks as they are, files by what is in them.

    *data* is what the caller says of the columns of a data set.
    """
    if isinstance(source, RunSpec):
        return source
    if isinstance(source, Suite):
        return RunSpec(name=source.name, tasks=source.tasks)
    if not isinstance(source, str | Path):
        return RunSpec(name="tasks", tasks=tuple(source))
    if is_data_set(source):
        from bakeoff.formats.run_file import read_data_file

        return read_data_file(source, overrides, data)
    if data.columns:
        raise UsageError(
            f"{source}: --expected and --map name columns of a data set, and this is none; in a run "
            "file, write `map` into [[data]]"
        )
    return read_path(Path(source), overrides, data)


def is_data_set(source: str | Path) -> bool:
    """Whether *source* is a file of rows, here or on the Hugging Face Hub."""
    if str(source).startswith(HUB):
        return True
    path = Path(source)
    return path.exists() and format_of(path) in DATA_SETS


def open_data_set(source: str | Path) -> "DataFile":
    """Return the file of rows that *source* names, opened by the reader of its format."""
    from bakeoff.formats.data.delimited import read_delimited, scan_delimited
    from bakeoff.formats.data.json_rows import read_json_array, read_json_lines, scan_json_lines
    from bakeoff.formats.data.rows import local_file

    if str(source).startswith(HUB):
        from bakeoff.formats.data.hugging_face import open_hub_data_set

        return open_hub_data_set(str(source), open_data_set)
    path = Path(source)
    match format_of(path):
        case Format.PARQUET:
            from bakeoff.formats.data.duckdb_rows import read_parquet, scan_parquet

            return local_file(path, read_parquet, scan_parquet)
        case Format.DELIMITED:
            return local_file(path, read_delimited, scan_delimited)
        case Format.JSON_LINES:
            return local_file(path, read_json_lines, scan_json_lines)
        case Format.JSON_ROWS:
            return local_file(path, read_json_array)
    raise UsageError(
        f"{source}: not a data set; one ends in .csv, .tsv, .jsonl, .json (a list) or .parquet"
    )


def read_path(
    path: Path,
    overrides: Mapping[str, str] | None = None,
    data: DataOptions = NO_DATA_OPTIONS,
) -> RunSpec:
    """Return what the file or the folder *path* asks for."""
    if not path.exists() and (meant := near_file(path)) is not None:
        raise UsageError(f"{path} cannot be read: there is no such file; did you mean {meant}?")
    match format_of(path):
        case Format.SUITE:
            return read_suite_file(path, overrides)
        case Format.DIALOGUE:
            from bakeoff.formats.dialogue import read_cases

            return read_cases(path, overrides)
        case Format.RUN_FILE:
            from bakeoff.formats.run_file import read_run_file

            _refuse_misspelt_format(path)
            return read_run_file(path, overrides, data)
        case Format.ROLLOUTS:
            from bakeoff.formats.rollouts import read_rollouts_file

            return read_rollouts_file(path, overrides)
        case Format.AGENT_BENCHMARK:
            from bakeoff.formats.agent_bench import read_agent_bench

            return read_agent_bench(path, overrides)
        case Format.MARKDOWN_TASK:
            from bakeoff.formats.markdown_task import read_markdown_task

            return read_markdown_task(path, overrides)
        case Format.TASK_FOLDER:
            from bakeoff.formats.run_file import read_task_folders

            return read_task_folders(path, overrides)
    raise UsageError(_why_not_run(path))


def read_suite_file(path: Path, overrides: Mapping[str, str] | None = None) -> RunSpec:
    """Return what the suite at *path* asks for, as if a run file with *overrides* had named only it."""
    if overrides:
        from bakeoff.formats.run_file import read_suite_with

        return read_suite_with(path, overrides)
    from bakeoff.formats.suite import read_suite

    return read_suite(path)


def _why_not_run(path: Path) -> str:
    """Say what *path* is, and what can be run."""
    match format_of(path):
        case Format.FOREIGN:
            from bakeoff.formats.foreign import hand_over

            return hand_over(path) or f"{path}: it was changed while it was read"
        case Format.BENCHMARK_AGENT:
            return (
                f"{path}: this is an agent of an agent benchmark; run it with the base file: "
                f"bakeoff run BASE.toml --agents {path}"
            )
    if path.suffix.lower() in _SPREADSHEETS and path.exists():
        return f'{path}: a spreadsheet is not read here; save its table as CSV, in Excel as "CSV UTF-8"'
    what = "unknown kind of file." if path.exists() else "there is no such file or folder."
    return (
        f"{path}: {what} A suite ends in .json, a run file in .toml, a data set in .csv, .tsv, .jsonl "
        "or .parquet, a task in Markdown in .md; any other coding task is a folder"
    )


def format_of(path: Path) -> Format:
    """Return the format of *path*; of a file that cannot be read, the one whose reader says why."""
    if path.is_dir():
        has_dialogues = not is_task_folder(path) and dialogue_files(path)
        return Format.DIALOGUE if has_dialogues else Format.TASK_FOLDER
    match path.suffix.lower():
        case ".json":
            return _format_of_json(path)
        case ".toml":
            return _format_of_toml(path)
        case ".yaml" | ".yml" | ".py" | ".js" | ".ts" | ".mjs" | ".cjs" | ".mts" | ".cts":
            from bakeoff.formats.foreign import is_foreign

            return Format.FOREIGN if is_foreign(path) else Format.UNKNOWN
        case ending:
            return _BY_ENDING.get(ending, Format.UNKNOWN)


def _format_of_json(path: Path) -> Format:
    if _is_dialogue_file(path):
        return Format.DIALOGUE
    if _begins_with_a_list(path):
        return Format.JSON_ROWS
    return Format.FOREIGN if _is_promptfoo_config(path) else Format.SUITE


def _is_promptfoo_config(path: Path) -> bool:
    """Whether *path*, which people may call as they like, has keys that only such a config has."""
    try:
        with path.open("rb") as file:
            beginning = file.read(_BEGINNING)
    except OSError:
        return False
    if b'"prompts"' not in beginning or not (
        b'"providers"' in beginning or b'"targets"' in beginning
    ):
        return False
    from bakeoff.formats.foreign import is_foreign

    return is_foreign(path)


def _begins_with_a_list(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            beginning = file.read(_BEGINNING)
    except OSError:
        return False
    text = beginning.decode("utf-16" if beginning[:2] in _UTF_16 else "utf-8-sig", "ignore")
    return text.lstrip().startswith("[")


def is_of_tasks(path: Path) -> bool:
    """Whether *path* holds tasks that can be tried out by themselves: a folder, or one in Markdown."""
    return path.is_dir() or format_of(path) is Format.MARKDOWN_TASK


def _format_of_toml(path: Path) -> Format:
    try:
        data, _ = read_toml(path)
    except UsageError:
        return Format.RUN_FILE
    if isinstance(data.get("benchmark"), Mapping):
        return Format.AGENT_BENCHMARK
    if _is_dialogue(data):
        return Format.DIALOGUE
    if is_benchmark_agent(data):
        return Format.BENCHMARK_AGENT
    return Format.ROLLOUTS if _names_prepared_tasks(data) else Format.RUN_FILE


def _is_dialogue(data: object) -> bool:
    return isinstance(data, Mapping) and "objective" in data


def is_benchmark_agent(data: Mapping[str, Json]) -> bool:
    """Whether the keys of a TOML file are those of one agent of an agent benchmark."""
    if "model" not in data:
        return False
    from bakeoff.formats.agent_bench_cases import AgentFile

    return set(data) <= set(AgentFile.__struct_fields__)


def _names_prepared_tasks(data: Mapping[str, Json]) -> bool:
    """Whether [[tasks]] have a `prepared_dir`, perhaps misspelt: only those of rollouts do."""
    tasks = data.get("tasks")
    return isinstance(tasks, list) and any(
        isinstance(task, Mapping) and near("prepared_dir", task, least=0.85) for task in tasks
    )


def _refuse_misspelt_format(path: Path) -> None:
    """Raise where the key that tells the format of a TOML file is misspelt."""
    from bakeoff.formats.run_file import RunFile

    data, text = read_toml(path)
    for key in set(data) - set(RunFile.__struct_fields__):
        if meant := near(key, ("objective", "benchmark"), least=0.85):
            line = line_of(text, (key,))
            raise UsageError(f"{path}:{line}: unknown key {key!r}; did you mean {meant!r}?")


def dialogue_files(folder: Path) -> list[Path]:
    """Return the dialogues that lie in *folder*, in the order of their names."""
    return [path for path in sorted(folder.iterdir()) if _is_dialogue_file(path)]


def _is_dialogue_file(path: Path) -> bool:
    """Whether *path* is a file with a dialogue in it; one that cannot be read is none."""
    if path.suffix.lower() not in _DIALOGUE_ENDINGS or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            if b"objective" not in file.read(_BEGINNING):  # a suite may be long
                return False
    except OSError:
        return False
    try:
        read = read_json if path.suffix.lower() == ".json" else read_toml
        return _is_dialogue(read(path)[0])
    except UsageError:
        return False


def is_task_folder(path: Path) -> bool:
    """Whether *path* is the folder of one coding task."""
    return path.is_dir() and any((path / name).is_file() for name in _TASK_FILES)


def format_of_task_folder(folder: Path, settings: Mapping[str, Json]) -> TaskFolderFormat:
    """Return what the task in *folder* is, whose `task.toml` holds *settings*."""
    if (folder / PREPARED_META).is_file():
        return TaskFolderFormat.PREPARED
    if (folder / OLD_TERMINAL_BENCH).is_file() and not (folder / SETTINGS).is_file():
        return TaskFolderFormat.OLD_TERMINAL_BENCH
    is_harbor = (folder / "environment").is_dir() or settings.keys() & {"environment", "verifier"}
    return TaskFolderFormat.HARBOR if is_harbor else TaskFolderFormat.NATIVE


# --- task folders ---------------------------------------------------------------------------------


def read_tasks(path: Path) -> RunSpec:
    """Return the task in the folder *path*, or those in the folders in it.

    Folders whose name begins with a dot or an underscore are left out. What is wrong is told for
    all tasks at once.
    """
    folders = [path] if is_task_folder(path) else _task_folders(path)
    tasks: dict[str, Task] = {}
    problems = Problems()
    for folder in folders:
        with problems.gathered():
            task = read_task_folder(folder)
            if task.id in tasks:
                raise UsageError(
                    f"{folder}: task {task.id!r} is defined twice; give each its own `id`"
                )
            tasks[task.id] = task
    problems.raise_any()
    sources = (
        Source(path=str(folder.resolve()), digest=task.digest)
        for folder, task in zip(folders, tasks.values(), strict=True)
    )
    return RunSpec(name=path.resolve().name, tasks=tuple(tasks.values()), sources=tuple(sources))


def _task_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such folder")
    folders = [
        folder
        for folder in sorted(path.iterdir())
        if not folder.name.startswith((".", "_")) and is_task_folder(folder)
    ]
    if not folders:
        files = [
            file for ending in ("toml", "json", "md") for file in sorted(path.glob(f"*.{ending}"))
        ]
        hint = f"; to run a file that is in it, name the file: {files[0]}" if files else ""
        raise UsageError(
            f"{path}: there is no task in this folder; a task is a folder with an {INSTRUCTION}{hint}"
        )
    return folders


def read_task_folder(path: Path) -> Task:
    """Return the task in the folder *path*; every path in it is absolute."""
    with as_given(path):
        return placed_as_given(_read(path.resolve()), path)


def _read(path: Path) -> Task:
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such folder")
    has_settings = (path / SETTINGS).is_file() and not (path / PREPARED_META).is_file()
    data, text = read_toml(path / SETTINGS) if has_settings else ({}, "")
    match format_of_task_folder(path, data):
        case TaskFolderFormat.PREPARED:
            return _prepared(path)
        case TaskFolderFormat.HARBOR:
            from bakeoff.formats.harbor import read_harbor_task

            return read_harbor_task(path, data, text)
        case TaskFolderFormat.NATIVE:
            from bakeoff.formats.native_task import read_native_task

            return read_native_task(path, data, text)
        case TaskFolderFormat.OLD_TERMINAL_BENCH:
            raise UsageError(
                f"{path}: this is a task of the first Terminal-Bench ({OLD_TERMINAL_BENCH}), which "
                f"is not read here; `harbor tasks migrate -i OLD -o NEW` makes one of the newer "
                "format of it"
            )


def _prepared(path: Path) -> Task:
    from bakeoff.formats.prepared import PreparedDir, read_prepared

    task = read_prepared(PreparedDir(folder=path, shown=str(path)))
    if task.trouble is not None:
        raise UsageError(task.trouble)
    return task


# --- schemas --------------------------------------------------------------------------------------


def json_schema(kind: str) -> dict[str, Json]:
    """Return the JSON Schema of a file that people write, for their editors."""
    import msgspec

    from bakeoff.formats.dialogue import DialogueFile
    from bakeoff.formats.native_task import TaskFile
    from bakeoff.formats.run_file import RunFile
    from bakeoff.formats.suite import SuiteFile

    kinds: dict[str, tuple[str, type[msgspec.Struct]]] = {
        "run": ("Bakeoff run", RunFile),
        "suite": ("Bakeoff suite", SuiteFile),
        "task": ("Bakeoff task (task.toml)", TaskFile),
        "dialogue": ("Bakeoff dialogue", DialogueFile),
    }
    title, struct = kinds[kind]
    schema: dict[str, Json] = msgspec.json.schema(struct)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
