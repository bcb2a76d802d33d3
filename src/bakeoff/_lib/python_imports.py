"""Which modules a Python source imports, told from its text: it need not be valid, and is not run."""

import re


def imports_module(source: str, name: str) -> bool:
    """Whether *source* imports the module *name* or something below it, also after others: `import a, b`."""
    others = r"(?:[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*,[ \t]*)*"
    statement = rf"(?:from[ \t]+{re.escape(name)}\b|import[ \t]+{others}{re.escape(name)}\b)"
    return re.search(rf"(?:^|;)[ \t]*{statement}", source, re.MULTILINE) is not None
