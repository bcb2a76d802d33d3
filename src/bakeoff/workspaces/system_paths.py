"""Which paths of a machine decide how programs start there: a change to one can change any program.

Programs on PATH, libraries and what loads them, packages of interpreters, start-up files of shells,
and the settings and caches of the tools with which verifiers install what they need.
"""

import re
from collections.abc import Container
from pathlib import PurePosixPath

_FOLDERS = re.compile(
    r"""(?:
        (?:usr/)?(?:local/)?(?:bin|sbin|lib|lib32|lib64|libx32|libexec|games)
      | usr/share/(?:perl|python|nodejs|ruby|gcc)[^/]*
      | etc/(?:ld\.so\.|profile|bash|zsh|environment|inputrc|alternatives|apt|pip\.conf|python|perl|npmrc|security)[^/]*
    )(?:/.*)?""",
    re.VERBOSE | re.DOTALL,
)
_IN_HOMES = re.compile(
    r"""(?:root|home/[^/]+)/(?:
        \.(?:profile|bash[^/]*|zsh[^/]*|zprofile|zlogin|kshrc|inputrc|curlrc|wgetrc|npmrc|pydistutils\.cfg|pythonrc[^/]*)
      | \.[^/]+/(?:bin|lib)
      | \.local/share/(?:uv|pipx)
      | \.config/(?:uv|pip|fish)
      | \.(?:cache/(?:uv|pip)|pip|pyenv|nvm|rbenv|asdf)
    )(?:/.*)?""",
    re.VERBOSE | re.DOTALL,
)
_LIBRARIES = re.compile(r"(?:.*/)?lib\d*/(?:python|perl|ruby|node|jvm|[^/]+\.so)[^/]*", re.DOTALL)
_PROGRAMS = frozenset({"bin", "sbin", "Scripts"})
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_ENVIRONMENTS = frozenset({".venv", "venv", ".tox", ".nox"})
_REPLACED_WHOLE = frozenset({"opt", "root", "home", "usr", "lib", "bin", "sbin"})


def is_system_path(
    path: str,
    *,
    root: str,
    in_image: Container[str],
    environments: Container[str] = (),
    is_link: bool = False,
) -> bool:
    """Whether *path*, from the root of the machine, decides how its programs start.

    Beyond the usual places these are folders of programs, packages and libraries that the image had
    elsewhere; new ones are the agent's own. In the workspace, which lies at *root*, they are those
    of virtual environments: folders with a usual name, and the *environments* that the change made.
    """
    parts = PurePosixPath(path).parts
    above = ["/".join(parts[: number + 1]) for number in range(len(parts))]
    if _is_usual(path) and not _is_usual(root):
        return True
    if is_link and path in in_image and (path == root or root.startswith(f"{path}/")):
        return True  # else the whole workspace would come from another folder
    if root and f"{path}/".startswith(f"{root}/"):
        return any(
            name in _ENVIRONMENTS or folder in environments
            for name, folder in zip(parts[:-1], above, strict=False)
        )
    if is_link and path in in_image:
        # whatever was in this folder would now come from another
        return len(parts) == 1 or parts[0] in _REPLACED_WHOLE
    return any(
        folder in in_image and (name in _PROGRAMS | _PACKAGES or _LIBRARIES.fullmatch(folder))
        for name, folder in zip(parts, above, strict=True)
    )


def _is_usual(path: str) -> bool:
    """Whether *path* lies where programs, libraries and their settings usually are."""
    return bool(_FOLDERS.fullmatch(path) or _IN_HOMES.fullmatch(path))
