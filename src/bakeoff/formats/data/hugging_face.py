"""Data sets of the Hugging Face Hub: `hf://owner/name[@revision][:split]` (extra `data`).

Files come through huggingface-hub, into and from its cache; without a network, from the cache alone.
The revision is resolved to a commit, which the manifest keeps.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from bakeoff._lib.digest import digest
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Source
from bakeoff.formats.data.duckdb_rows import NEEDS_EXTRA
from bakeoff.formats.data.rows import DataFile, Row, together

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_ADDRESS = re.compile(
    r"hf://(?P<name>(?:[\w.-]+/)?[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?::(?P<split>[\w./-]+))?"
)
_ENDINGS = (".parquet", ".jsonl", ".csv", ".tsv")  # the first kind that is there is read
_USUAL_SPLITS = ("test", "validation", "train")
_SHARD = re.compile(r"-\d+-of-\d+$")
_CONVERTED = "refs/convert/parquet"  # where the Hub keeps Parquet of what people uploaded otherwise


@value_object
class _Snapshot:
    """A data set at one commit: its files, and whether they are all in the cache."""

    name: str
    commit: str
    files: tuple[str, ...]
    fetch: Callable[[str], Path]


def open_hub_data_set(address: str, open_file: Callable[[Path], DataFile]) -> DataFile:
    """Return the rows of the split that *address* names; *open_file* opens each file of it."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise UsageError(f"{address}: write it as hf://owner/name[@revision][:split]")
    snapshot = _snapshot(address, match["name"], match["revision"])
    splits = _splits(snapshot.files)
    split = _chosen(address, match["split"], list(splits))
    pinned = f"hf://{snapshot.name}@{snapshot.commit}:{split}"
    paths = [snapshot.fetch(file) for file in splits[split]]
    notice = f"{address}: read as {pinned}"
    return DataFile(
        name=f"hf://{snapshot.name}:{split}",
        source=Source(path=pinned, digest=digest([pinned, list(splits[split])])),
        rows=partial(_rows, paths, open_file),
        scan=lambda: together(shape for path in paths for shape in open_file(path).scan()),
        size=sum(path.stat().st_size for path in paths),
        notices=(notice,),
    )


def _rows(paths: Sequence[Path], open_file: Callable[[Path], DataFile]) -> Iterator[Row]:
    """Yield the rows of all *paths*, numbered through."""
    before = 0
    for path in paths:
        line = 0
        for line, values in open_file(path).rows():
            yield Row(before + line, values)
        before += line


def _snapshot(address: str, name: str, revision: str | None) -> _Snapshot:
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import (
            GatedRepoError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise UsageError(f"{address}: data sets of the Hugging Face Hub: {NEEDS_EXTRA}") from error
    api = HfApi()
    try:
        return _online(api, name, revision)
    except GatedRepoError as error:
        raise UsageError(f"{address}: access to {name} must be granted; set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise UsageError(f"{address}: {name} has no revision {revision!r}") from error
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"{address}: there is no data set {name} on the Hub, or it is private; for one of yours, set "
            "HF_TOKEN"
        ) from error
    except Exception as error:  # what else it may be depends on the HTTP client in use
        cached = _cached(name, revision)
        if cached is None:
            why = f"{address}: the Hub cannot be reached, and the cache has no copy"
            raise UsageError(f"{why}: {_reason(error)}") from error
        return cached


def _online(api: "HfApi", name: str, revision: str | None) -> _Snapshot:
    info = api.dataset_info(name, revision=revision)
    if revision is None and not _splits(_names(info.siblings)):
        info = api.dataset_info(name, revision=_CONVERTED)
    commit = str(info.sha)

    def fetch(file: str) -> Path:
        try:
            return Path(api.hf_hub_download(name, file, repo_type="dataset", revision=commit))
        except Exception as error:
            why = f"hf://{name}@{commit}: {file} cannot be fetched"
            raise UsageError(f"{why}: {_reason(error)}") from error

    return _Snapshot(name=name, commit=commit, files=_names(info.siblings), fetch=fetch)


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _names(siblings: "Sequence[object] | None") -> tuple[str, ...]:
    return tuple(str(getattr(file, "rfilename", "")) for file in siblings or ())


def _cached(name: str, revision: str | None) -> _Snapshot | None:
    """Return the data set as huggingface-hub's cache has it; None where it has none."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE) / f"datasets--{name.replace('/', '--')}"
    ref = folder / "refs" / (revision or "main")
    snapshots = folder / "snapshots"
    if ref.is_file():
        snapshot = snapshots / ref.read_text(encoding="utf-8").strip()
    elif revision is not None:
        snapshot = snapshots / revision
    else:  # files that were fetched by their commit leave no reference: the newest one is meant
        there = snapshots.iterdir() if snapshots.is_dir() else ()
        snapshot = max(there, key=lambda path: path.stat().st_mtime, default=snapshots / "none")
    if not snapshot.is_dir():
        return None
    files = tuple(
        path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()
    )
    return _Snapshot(
        name=name, commit=snapshot.name, files=files, fetch=lambda file: snapshot / file
    )


def _splits(files: Sequence[str]) -> Mapping[str, list[str]]:
    """Return the files of each split, `test` or `subset/test`, of the first kind that is there."""
    for ending in _ENDINGS:
        splits: dict[str, list[str]] = {}
        for file in sorted(f for f in files if f.lower().endswith(ending)):
            splits.setdefault(_split_of(PurePosixPath(file)), []).append(file)
        if splits:
            return splits
    return {}


def _split_of(file: PurePosixPath) -> str:
    """Return the split of a file: `data/test-00000-of-00002`, `main/test/0000` and the like."""
    parts = [part for part in file.parts[:-1] if part != "data"]
    stem = _SHARD.sub("", file.stem)
    if not stem.isdigit():
        parts.append(stem)
    return "/".join(parts) or stem


def _chosen(address: str, wanted: str | None, splits: Sequence[str]) -> str:
    if not splits:
        raise UsageError(f"{address}: it has no Parquet, JSON Lines, CSV or TSV file")
    names = (wanted,) if wanted is not None else _USUAL_SPLITS
    for name in names:
        meant = [split for split in splits if split == name or split.endswith(f"/{name}")]
        if name in meant or len(meant) == 1:
            return name if name in meant else meant[0]
        if meant:
            which = ", ".join(f":{split}" for split in meant)
            raise UsageError(
                f"{address}: {name!r} is in several subsets; end it with one of {which}"
            )
    if wanted is None and len(splits) == 1:
        return splits[0]
    hint = did_you_mean(wanted or "", splits)
    raise UsageError(
        f"{address}: {'which split?' if wanted is None else f'no split {wanted!r};'} {hint}"
    )
