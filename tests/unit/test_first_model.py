"""Which model a new run file starts with."""

from importlib.util import find_spec

import pytest

from bakeoff.app.inspection import STARTERS, first_model
from bakeoff.app.model_names import resolve
from bakeoff.app.pricing import Prices
from bakeoff.core.candidate import ModelSpec
from bakeoff.models.providers import PROVIDERS


@pytest.mark.parametrize(("provider", "name"), STARTERS.items())
def test_a_model_to_start_with_has_a_key_and_a_price(provider: str, name: str) -> None:
    assert PROVIDERS[provider].key
    spec = resolve(ModelSpec(provider="", name=f"{provider}/{name}"))
    assert spec.provider == provider
    assert Prices().tariff(spec).price is not None


def test_where_the_embedded_model_is_installed_nobody_is_asked() -> None:
    if find_spec("xllamacpp") is None:
        pytest.skip("the embedded model is not installed")
    chosen = first_model({"OPENAI_API_KEY": "k", "OLLAMA_HOST": "not a host"})
    assert (chosen.name, chosen.install, chosen.billed) == ("embedded", None, False)
