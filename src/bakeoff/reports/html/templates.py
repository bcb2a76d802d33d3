"""The one way to HTML: Jinja2 templates in which every value is escaped and harmless.

Pages of reports and of the viewer are made of the same components. A page of a report is one file
without scripts or requests; what it may load is said in its content security policy.
"""

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.reports import comparison
from bakeoff.reports.html import text
from bakeoff.reports.wording import decision, phrases

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

COMPONENTS = Path(__file__).parent / "templates"


@cache
def environment(*folders: Path) -> "Environment":
    """Return the environment of the templates in *folders*, which may use the shared components."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    env = Environment(
        loader=FileSystemLoader([*folders, COMPONENTS]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.globals.update(phrases=phrases, decision=decision, text=text, comparison=comparison)
    env.filters["named"] = named
    env.filters["sentence"] = phrases.sentence
    return env


def named(name: str, width: int = 120) -> str:
    """Return an untrusted name on one line."""
    return one_line(name, width=width)


def _harmless(value: object) -> object:
    """Return *value* as text without control or direction characters; markup of ours stays as it is."""
    return value if hasattr(value, "__html__") else for_terminal(str(value))


def pages(template: str, **values: Any) -> Iterator[str]:
    """Yield a page that is one file, part by part, as its values become known."""
    page = environment().get_template(template)
    return page.generate(style=trusted(style_sheet()), policy=trusted(_policy()), **values)


def part(template: str, macro: str, *values: Any, **named_values: Any) -> "Markup":
    """Return what one macro of *template* makes of the values."""
    from markupsafe import Markup

    module = environment().get_template(template).module
    return Markup(getattr(module, macro)(*values, **named_values))  # noqa: S704 -- of a template


@cache
def style_sheet() -> str:
    """Return the style sheet of all pages."""
    return colours() + (COMPONENTS / "style.css").read_text(encoding="utf-8")


def colours(scope: str = ":root") -> str:
    """Return the style sheet that names the colours, light and dark, for what is in *scope*."""
    return (COMPONENTS / "colours.css").read_text(encoding="utf-8").replace(":root", scope)


def trusted(text: str) -> "Markup":
    """Return *text*, in which nothing is a stranger's, as it stands."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704


@cache
def _policy() -> str:
    """Return the content security policy: the page may load only its own style sheet."""
    digest = base64.b64encode(hashlib.sha256(style_sheet().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
