"""Where an agent works: the files it is given, the box they lie in, and what it must not see."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Literal, NamedTuple, TypeAlias

from bakeoff._lib.value_object import value_object
from bakeoff.core.values import Json

Network: TypeAlias = bool | tuple[str, ...]
"""What a box may reach: nothing, everything that is public, or the hosts of a list."""

_WEB_PORTS = frozenset({80, 443})
_MOST_PORT = 65535
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_ENTRY = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(:(?P<port>[0-9]{1,5}))?")


@value_object
class AllowedHost:
    """A host by its name or address, or with `subdomains` all that are below it; "" is any host.

    Without a `port` it can be reached at those of the web, 80 and 443.
    """

    name: str
    port: int | None = None
    subdomains: bool = False

    def covers(self, host: str, port: int) -> bool:
        """Whether *host* can be reached at *port*; *host* is written as `plain_host` writes it."""
        if port not in (_WEB_PORTS if self.port is None else {self.port}):
            return False
        if not self.subdomains:
            return host == self.name
        return not self.name or host.endswith(f".{self.name}")


def parse_allowed_host(text: str) -> AllowedHost:
    """Return the entry that *text* is; ValueError says what is wrong with it."""
    parts = _ENTRY.fullmatch(text)
    if parts is None:
        raise ValueError(
            f"{text!r} is no host; write a name such as pypi.org, *.pypi.org or pypi.org:8443, "
            "without http:// and without a path"
        )
    name, port = parts["name"], None if parts["port"] is None else int(parts["port"])
    if port is not None and not 0 < port <= _MOST_PORT:
        raise ValueError(f"{text!r} has no port between 1 and {_MOST_PORT}")
    if name == "*":
        return AllowedHost(name="", port=port, subdomains=True)
    below = name.removeprefix("*.")
    plain = plain_host(below)
    if plain is None or (below != name and _is_address(plain)):
        raise ValueError(f"{text!r} is no host; write a name such as pypi.org, or *.pypi.org")
    return AllowedHost(name=plain, port=port, subdomains=below != name)


def plain_host(host: str) -> str | None:
    """Return *host* in the one form in which hosts are compared; None where it is none."""
    bare = host.strip("[]").rstrip(".").lower()
    if _is_address(bare):
        return str(ipaddress.ip_address(bare))
    try:
        ascii_name = bare if bare.isascii() else bare.encode("idna").decode("ascii")
    except UnicodeError:
        return None
    # a name that ends in a number is an address to some resolvers: 2130706433, 0x7f.1
    last = ascii_name.rsplit(".", 1)[-1]
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", last):
        return None
    return ascii_name if _NAME.fullmatch(ascii_name) else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


IN_IMAGE = "BAKEOFF.in_image"
"""The header of a member of a change's archive at whose path the image has something too."""


@value_object
class Tree:
    """Files: `path` says where they are found, `digest` what they are, `at` where they go.

    With a `commit`, `path` is a git repository: a folder, a bundle or a URL; `subdir` and `sparse`
    choose a part of it. Without one it is a folder. `at` is relative to the root of the workspace;
    an absolute `at` is a place of its own in the box, which only hidden files may have.
    Of a folder, what has a name in `left_out`, however deep, is not taken and not in the digest.
    """

    path: str
    digest: str
    at: str = ""
    commit: str | None = None
    subdir: str | None = None
    sparse: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def identity(self) -> dict[str, Json]:
        """Return what the files are and where they go, not where they were found."""
        return {
            "digest": self.digest,
            "at": self.at,
            "subdir": self.subdir,
            "sparse": list(self.sparse),
        }


@value_object
class Image:
    """What a container starts from: an image by its name, or a folder that it is built from.

    The build sees nothing of what lies at a path in `left_out`, relative to the folder.
    """

    name: str | None = None
    context: Tree | None = None
    dockerfile: str = "Dockerfile"
    left_out: tuple[str, ...] = ()

    def identity(self) -> dict[str, Json]:
        """Return what decides the content of the image."""
        context = None if self.context is None else self.context.identity()
        return {"name": self.name, "context": context, "dockerfile": self.dockerfile}


@value_object
class Reference:
    """The reference solution: files laid over the workspace, a patch, or a script run in it.

    `at` is the folder of the workspace that the paths in a patch begin at.
    """

    kind: Literal["files", "patch", "script"]
    path: str
    at: str = ""


@value_object
class BoxLimits:
    """What one box may take; None is no limit. `setup_s` is for its set-up commands."""

    memory_mb: int | None = 4096
    processes: int | None = 512
    disk_mb: int | None = 4096
    cpus: float | None = None
    setup_s: float = 600.0

    def identity(self) -> dict[str, Json]:
        """Return the limits that an agent feels."""
        return {
            "memory_mb": self.memory_mb,
            "processes": self.processes,
            "disk_mb": self.disk_mb,
            "cpus": self.cpus,
        }


@value_object
class SandboxSpec:
    """A sandbox by name, with its settings; without a name, the best there is."""

    name: str | None = None
    settings: Mapping[str, Json] = field(default_factory=dict)


@value_object
class Workspace:
    """The files of a task and the box for them.

    The `files` are laid one over another, `removed` globs are taken away, `texts` written last. In
    the box they lie under `root`; the agent starts in `workdir`, which is relative to it.

    `hidden` files reach only the box in which the work is graded, after the agent's change; paths
    that match `protected` are as they were before the agent came. `check` is a command that the
    agent may know: it tells whether the work looks finished, and is never the verdict.

    `network` is what the box may reach: nothing, everything public, or the hosts of a list.

    `shown` folders lie at a place of their own in the box, and are read-only.

    With `whole_box` the change is that of the box's whole file system, which an image brought;
    else it is that of the files under `root`. Changes to what decides how programs start (programs
    on PATH, libraries, packages, start-up files) do not reach the grade, unless the task is about
    them and says `trust_system_changes`.
    """

    files: tuple[Tree, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    root: str = "/app"
    workdir: str = ""
    image: Image | None = None
    whole_box: bool = False
    setup: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    network: Network = False
    limits: BoxLimits = field(default_factory=BoxLimits)
    check: str | None = None
    hidden: tuple[Tree, ...] = ()
    protected: tuple[str, ...] = ()
    reference: Reference | None = None
    shown: tuple[Tree, ...] = ()
    trust_system_changes: bool = False

    @property
    def start(self) -> str:
        """Where in the box the agent starts."""
        return f"{self.root}/{self.workdir}".rstrip("/") or "/"

    def identity(self) -> dict[str, Json]:
        """Return what makes a difference to an agent or to its grade."""
        shown = {"shown": [tree.identity() for tree in self.shown]} if self.shown else {}
        trusts = {"trust_system_changes": True} if self.trust_system_changes else {}
        return {
            **shown,
            **trusts,
            "files": [tree.identity() for tree in self.files],
            "texts": dict(self.texts),
            "removed": list(self.removed),
            "root": self.root,
            "workdir": self.workdir,
            "image": None if self.image is None else self.image.identity(),
            "whole_box": self.whole_box,
            "setup": list(self.setup),
            "environment": dict(self.environment),
            "network": self.network if isinstance(self.network, bool) else list(self.network),
            "limits": self.limits.identity(),
            "check": self.check,
            "hidden": [tree.identity() for tree in self.hidden],
            "protected": list(self.protected),
        }


@value_object
class Change:
    """What an agent changed: a patch against the files it was given, in git's format.

    `left_out` names what no patch can hold, such as a FIFO, and what is new but ignored, such as
    node_modules. `archive` is the change of a whole box:
    a gzipped tar of what is new or different, with the paths that are gone in `gone`.
    """

    patch: str
    files: int = 0
    added: int = 0
    removed: int = 0
    left_out: tuple[str, ...] = ()
    archive: bytes | None = None
    gone: tuple[str, ...] = ()


# --- a change as a patch of the repository --------------------------------------------------------


_FILE = re.compile(r"^(?=diff --git )", re.MULTILINE)
_END_OF_HEADER = re.compile(r"^(?:@@ |GIT binary patch|Binary files )", re.MULTILINE)
_NAMED = ("diff --git ", "--- ", "+++ ")  # the lines of a header that hold names
_PATCHED_NAME = re.compile(r'"?[ab]/')
_PLAIN = re.compile(r"[\w.+@/-]*")  # written the same in a name that git puts in quotes


class RepositoryPatch(NamedTuple):
    """`inside` has paths relative to the repository; `outside` is the rest, from the root."""

    inside: str
    outside: str


def repository_patch(workspace: Workspace | None, patch: str) -> RepositoryPatch:
    """Return *patch*, whose paths begin at the root of *workspace*, as its repository sees it.

    The repository is what lies undermost in the workspace; of one that was taken in part, paths
    begin at its top, not at the part.
    """
    tree = workspace.files[0] if workspace is not None and workspace.files else None
    folder, subdir = (tree.at.strip("/"), (tree.subdir or "").strip("/")) if tree else ("", "")
    plain = _PLAIN.fullmatch(folder) and _PLAIN.fullmatch(subdir)
    if not plain or not (folder or subdir):
        return RepositoryPatch(inside=patch, outside="")
    inside: list[str] = []
    outside: list[str] = []
    for part in _FILE.split(patch):
        moved = _moved(part, _slashed(folder), _slashed(subdir))
        (outside if moved is None else inside).append(part if moved is None else moved)
    return RepositoryPatch(inside="".join(inside), outside="".join(outside))


def _slashed(folder: str) -> str:
    return f"{folder}/" if folder else ""


def _moved(part: str, folder: str, subdir: str) -> str | None:
    """Return the patch of one file with the names in its header moved; None where it is elsewhere.

    Only the header has names: a line of a file may look like one.
    """
    end = _END_OF_HEADER.search(part)
    header, rest = (part[: end.start()], part[end.start() :]) if end else (part, "")
    lines = header.split("\n")
    for number, line in enumerate(lines):
        start = next((key for key in _NAMED if line.startswith(key)), None)
        if start is None:
            continue
        names = line.removeprefix(start)
        half = len(names) // 2  # of a pair, both are equally long: there are no renames
        pair = start == _NAMED[0]
        moved = [
            _name(name, folder, subdir)
            for name in ([names[:half], names[half + 1 :]] if pair else [names])
        ]
        if not all(moved):
            return None
        lines[number] = start + " ".join(moved)
    return "\n".join(lines) + rest


def _name(name: str, folder: str, subdir: str) -> str:
    """Return a name such as a/repo/x as it is in the repository; nothing where it is not in it."""
    if name == "/dev/null":
        return name
    match = _PATCHED_NAME.match(name)
    if match is None or not name.startswith(folder, match.end()):
        return ""
    return name[: match.end()] + subdir + name[match.end() + len(folder) :]
