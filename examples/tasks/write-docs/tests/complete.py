"""Every public function of units.py is in the section Functions, and so are its errors."""

import ast
import re
from pathlib import Path

ROOT = Path.cwd()


def main():
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    found = re.search(r"^## +Functions *$(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    section = found[1] if found else ""
    missing = []
    for node in ast.parse((ROOT / "units.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            errors = {
                raised.exc.func.id
                for raised in ast.walk(node)
                if isinstance(raised, ast.Raise) and isinstance(raised.exc, ast.Call)
            }
            missing += [name for name in (f"`{node.name}(", *errors) if name not in section]
    print(f"not described: {missing}" if missing else "all is described")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
