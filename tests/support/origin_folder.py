"""A prepared folder as the tool that prepares tasks for rollouts makes it, copies of secrets and all.

That tool writes tb_meta.json twice and copies the reference solution, the notes and what is known of
the repository into overlay_files/. Each secret holds a word of its own, so that a test can tell which
of them was seen where.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from support.prepared_tasks import CALC, PATCH, git, write_repo

SECRET = "canary"
SECRET_FILES = ("tb_meta.json", "diff.patch", "notes.md", "repo_info.json")

TEST_COMPLETION = f'''\
import os

import calc

# {SECRET}-tests


def test_it_adds():
    """The task is done."""
    assert calc.add(2, 3) == 5


def test_the_file_is_there():
    assert os.path.exists("calc.py")
    print('{{"custom_metrics": {{"files": 1}}}}')
'''

TEST_CODE_RUNS = f"""\
import subprocess

import pytest

# {SECRET}-code


@pytest.mark.parametrize("name", ["calc.py"])
def test_it_compiles(name):
    done = subprocess.run(["python3", "-m", "py_compile", name], capture_output=True)
    assert done.returncode == 0
"""

EVALUATION: dict[str, Any] = {
    "rubrics": [
        {"id": "task_completion", "criterion": "The task was completed", "weight": 0.4},
        {"id": "code_quality", "criterion": "The code is well made", "weight": 0.3},
        {"id": "testing", "criterion": "The code runs", "weight": 0.3},
    ],
    "test_scripts": [
        {
            "path": "tests/test_task_completion.py",
            "rubric_id": "task_completion",
            "content": TEST_COMPLETION,
        },
        {"path": "tests/test_code_runs.py", "rubric_id": "testing", "content": TEST_CODE_RUNS},
    ],
}

# what an agent does that looks for the tests: the names it knows, then every file it can read
PROBE = (
    "cat ../tb_meta.json ../diff.patch ../notes.md ../repo_info.json ../overrides.json; "
    "find .. -type f -not -path '*/.git/*' | sort; "
    f"grep -rs '{SECRET[:-1]}[{SECRET[-1]}]' .. /seen /opt/overlay"
)

DOCKERFILE = """\
FROM {image}
COPY . /seen/
COPY overlay_files/ /opt/overlay/
WORKDIR /app
COPY overlay_files/ /app/
"""


def write_origin_folder(folder: Path, *, image: str | None = None) -> Path:
    """Write the folder; its repository is a git repository beside it. With *image*, a Dockerfile."""
    repo = folder.parent.parent / "origin" / folder.name
    commit = write_repo(repo, {"calc.py": CALC, "README.md": "adds\n"})
    meta = {
        "task_id": f"{folder.name}_20250810_123456",
        "metadata": {"title": "Repair add", "tags": ["coding"]},
        "repo": {
            "git_url": str(repo),
            "branch": "main",
            "start_commit_sha": commit,
            "end_commit_sha": commit,
            "subdir": "",
            "sparse_checkout": [],
        },
        "lm": {"instructions": "Make `add` in calc.py add."},
        "evaluation": EVALUATION,
    }
    overlay = folder / "overlay_files"
    overlay.mkdir(parents=True)
    (folder / "overlay_repo_files").mkdir()
    for place in (folder, overlay):
        (place / "tb_meta.json").write_text(json.dumps(meta, indent=2))
    patch = f"{SECRET}-reference\n{PATCH}"
    info = json.dumps({"branch": "main", "note": f"{SECRET}-info"})
    for name, text, mode in (
        ("LM_INSTRUCTIONS.md", "# Task\n\nMake `add` in calc.py add.\n", 0o644),
        ("diff.patch", patch, 0o644),
        ("notes.md", f"{SECRET}-notes: the sign is wrong\n", 0o644),
        ("repo_info.json", info, 0o644),
        ("box_bootstrap.sh", "#!/bin/bash\nexec true\n", 0o755),
        ("codex-synth", '#!/bin/bash\nexec codex "$@"\n', 0o755),
    ):
        (overlay / name).write_text(text)
        (overlay / name).chmod(mode)
    if image is not None:
        (folder / "Dockerfile").write_text(DOCKERFILE.format(image=image))
    return folder


def apply_in_repository(folder: Path, patch: Path) -> str:
    """Apply *patch* in a fresh clone of the folder's repository and return its calc.py."""
    repo = folder.parent.parent / "origin" / folder.name
    clone = patch.parent / "clone"
    subprocess.run(["git", "clone", "-q", str(repo), str(clone)], check=True)
    git(clone, "apply", str(patch.absolute()))
    return (clone / "calc.py").read_text()
