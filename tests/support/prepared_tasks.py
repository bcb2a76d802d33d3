"""Prepared tasks, small: a repository with a wrong `add`, overlays, rubrics with their tests."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CALC = "def add(a, b):\n    return a - b\n"
FIX = "sed -i 's/a - b/a + b/' calc.py"
PATCH = """\
--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""
TEST_ADD = """\
import unittest

import calc


class TestAdd(unittest.TestCase):
    def test_it_adds(self):
        self.assertEqual(calc.add(2, 3), 5)


if __name__ == "__main__":
    unittest.main()
"""
RUBRIC = {"id": "adds", "criterion": "add adds", "weight": 1.0}
SCRIPT = {"path": "evaluation/test_add.py", "rubric_id": "adds"}


def git(folder: Path, *words: str) -> str:
    """Run git in *folder*, as nobody in particular."""
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def write_repo(folder: Path, files: Mapping[str, str] | None = None) -> str:
    """Make a repository with one commit, and return it."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    for name, text in (files or {"calc.py": CALC}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "start")
    return git(folder, "rev-parse", "HEAD")


def write_prepared(folder: Path, **changed: Any) -> Path:
    """Write a prepared task whose repository is a plain folder in it; *changed* keys of tb_meta win."""
    (folder / "source").mkdir(parents=True)
    (folder / "source" / "calc.py").write_text(CALC)
    (folder / "evaluation").mkdir()
    (folder / "evaluation" / "test_add.py").write_text(TEST_ADD)
    (folder / "diff.patch").write_text(PATCH)
    (folder / "repo_info.json").write_text('{"secret": "how it was solved"}')
    (folder / "notes.md").write_text("the sign is wrong")
    meta = {
        "task_id": folder.name,
        "metadata": {"title": "Repair add", "tags": ["coding", "tiny"]},
        "repo": {"git_url": "source"},
        "lm": {"instructions": "Make `add` in calc.py add."},
        "evaluation": {"rubrics": [RUBRIC], "test_scripts": [SCRIPT]},
        **changed,
    }
    (folder / "tb_meta.json").write_text(json.dumps(meta, indent=2))
    return folder


def write_overrides(folder: Path, **overrides: Any) -> Path:
    path = folder / "overrides.json"
    path.write_text(json.dumps(overrides))
    return path
