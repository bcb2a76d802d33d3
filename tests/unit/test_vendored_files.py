"""The files of others in the wheel are what their page says, byte for byte."""

import hashlib
import re
from pathlib import Path

STATIC = Path(__file__).parents[2] / "src" / "bakeoff" / "web" / "static"
OURS = {"README.md", "LICENSES", "viewer.js", "viewer.css"}


def test_each_vendored_file_has_its_version_licence_and_digest() -> None:
    rows = re.findall(
        r"^\| `(.+?)` \| (\S+ [\d.]+), .+? \| (.+?) \| `([0-9a-f]{64})` \|$",
        (STATIC / "README.md").read_text(),
        re.MULTILINE,
    )
    assert {name for name, *_ in rows} | OURS == {path.name for path in STATIC.iterdir()}
    licences = (STATIC / "LICENSES").read_text()
    for name, _, _, digest in rows:
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
        assert name in licences
