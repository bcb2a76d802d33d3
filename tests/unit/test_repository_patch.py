"""A change as a patch for the repository: what `git apply` makes of it there."""

import subprocess
from pathlib import Path

from bakeoff.core.workspace import Tree, Workspace, repository_patch
from support.prepared_tasks import git, write_repo

TRICKY = "a\n-- a/repo/calc.py\ndiff --git a/repo/x b/repo/x\n"
FILES = {
    "calc.py": "one\n",
    "tricky.txt": TRICKY,
    "gone.py": "x\n",
    "na me/ä a/repo/b.txt": "1\n",
    "picture.bin": "\x00\x01",
}


def _workspace(at: str, subdir: str | None = None) -> Workspace:
    return Workspace(files=(Tree(path="p", digest="d", at=at, commit="c", subdir=subdir),))


def _change(root: Path, at: str) -> str:
    """Change files below *root*/*at* and one beside it; return the patch from the root."""
    write_repo(root, {**{f"{at}/{name}": text for name, text in FILES.items()}, "beside": "1\n"})
    inner = root / at
    (inner / "calc.py").write_text("two\n")
    (inner / "tricky.txt").write_text(TRICKY.replace("-- a/repo/calc.py\n", ""))
    (inner / "gone.py").unlink()
    (inner / "new.py").write_text("new\n")
    (inner / "empty.py").touch()
    (inner / "na me/ä a/repo/b.txt").write_text("2\n")
    (inner / "picture.bin").write_bytes(b"\x00\x02")
    (root / "beside").write_text("2\n")
    git(root, "add", "-A")
    diff = ["git", "-C", str(root), "diff", "--cached", "--binary", "--full-index", "--no-renames"]
    return subprocess.run(diff, check=True, capture_output=True).stdout.decode()


def _applied(tmp_path: Path, files: dict[str, str], patch: str) -> Path:
    repo = tmp_path / "repository"
    write_repo(repo, files)
    (tmp_path / "diff.patch").write_text(patch)
    git(repo, "apply", str(tmp_path / "diff.patch"))
    return repo


def test_a_patch_from_the_root_applies_in_the_repository(tmp_path: Path) -> None:
    patch = _change(tmp_path / "root", "repo")
    parts = repository_patch(_workspace("repo"), patch)
    repo = _applied(tmp_path, FILES, parts.inside)
    for name in ("calc.py", "tricky.txt", "new.py", "empty.py", "na me/ä a/repo/b.txt"):
        assert (repo / name).read_text() == (tmp_path / "root/repo" / name).read_text()
    assert (repo / "picture.bin").read_bytes() == b"\x00\x02"
    assert not (repo / "gone.py").exists()
    assert "beside" not in parts.inside
    assert parts.outside.startswith("diff --git a/beside b/beside\n")


def test_of_a_part_of_a_repository_paths_begin_at_its_top(tmp_path: Path) -> None:
    parts = repository_patch(_workspace("repo", "python"), _change(tmp_path / "root", "repo"))
    below = {f"python/{name}": text for name, text in FILES.items()}
    repo = _applied(tmp_path, below, parts.inside)
    assert (repo / "python/calc.py").read_text() == "two\n"
    assert (repo / "python/empty.py").exists()


def test_a_patch_whose_repository_is_the_root_stays_as_it_is(tmp_path: Path) -> None:
    patch = _change(tmp_path / "root", "repo")
    for workspace in (_workspace(""), Workspace(), None):
        assert repository_patch(workspace, patch) == (patch, "")
