"""Sections, examples and links of README.md. Its examples run in a process of their own."""

import doctest
import re
import secrets
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUN = """
import doctest, sys
sys.path.insert(0, sys.argv[1])
failed, tried = doctest.testfile(sys.argv[1] + "/README.md", module_relative=False)
print(sys.argv[2], failed, tried)
"""


def main():
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    wrong = [*sections(text), *examples(text), *links(text)]
    print("\n".join(wrong) or "all is there")
    return 1 if wrong else 0


def sections(text):
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    if not re.match(r"\s*# \S.*\n\s*\n[^\n#`>]*\w", prose):
        yield "it does not begin with a heading and a sentence"
    if re.findall(r"^## +(.+?) *$", prose, flags=re.MULTILINE) != ["Usage", "Functions", "License"]:
        yield "the sections are not Usage, Functions, License"


def examples(text):
    found = doctest.DocTestParser().get_examples(text)
    asking = [example for example in found if example.want]
    if len(asking) < 3:
        yield f"{len(asking)} examples that print something, not 3"
        return
    # an example may end the process that runs it; then the word that only a whole run says is missing
    word = secrets.token_hex(8)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(ROOT), word],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    said = done.stdout.splitlines()
    if not said or said[-1] != f"{word} 0 {len(found)}":
        yield f"the examples do not hold: {done.stdout[-500:]}"


def links(text):
    targets = re.findall(r"\[[^\]]*\]\(([^)#\s]+)", text)
    if "LICENSE" not in targets:
        yield "there is no link to LICENSE"
    for target in targets:
        if "://" not in target and not (ROOT / target).exists():
            yield f"the link to {target} leads nowhere"


if __name__ == "__main__":
    raise SystemExit(main())
