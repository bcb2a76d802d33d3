"""Which models a batch is run with: found, configured, named."""

import json
from pathlib import Path
from typing import Any

import pytest

from bakeoff.core.candidate import Candidate, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.formats.models_file import ModelsConfig, read_models_file
from bakeoff.frontends.batch.files import file_names, names_of
from bakeoff.frontends.batch.models import ModelCatalog, choose, model_catalog
from bakeoff.models.discovery import FoundModel

URL = "http://127.0.0.1:11434"


def found(*names: str) -> list[FoundModel]:
    return [
        FoundModel(name=f"ollama/{name}", provider="ollama", base_url=URL, digest=f"d-{name}")
        for name in names
    ]


def config(tmp_path: Path, *models: dict[str, Any], **categories: list[str]) -> ModelsConfig:
    path = tmp_path / "models_config.yaml"
    path.write_text(json.dumps({"models": list(models), "categories": categories}))
    return read_models_file(path)


def names(there: ModelCatalog, wanted: str) -> list[str]:
    return [offer.name for offer in choose(there, wanted).offers]


def refusal(there: ModelCatalog, wanted: str) -> str:
    with pytest.raises(UsageError) as caught:
        choose(there, wanted)
    return str(caught.value)


OLLAMA = found("llama3:8b", "llama3:70b", "mistral:latest", "phi3:mini")


def test_all_is_every_model_of_the_ollama_then_the_enabled_ones(tmp_path: Path) -> None:
    gpt = {"name": "gpt-4", "provider": "openai", "display_name": "GPT-4", "api_key": "${KEY}"}
    off = {"name": "claude-3-opus", "provider": "anthropic", "enabled": False}
    there = model_catalog(OLLAMA, config(tmp_path, gpt, off), {"KEY": "x"})
    assert names(there, "all") == [
        "ollama/llama3:8b", "ollama/llama3:70b", "ollama/mistral:latest", "ollama/phi3:mini",
        "gpt-4",
    ]  # fmt: skip
    assert choose(there, "ALL").notices == ()


def test_a_name_is_taken_exactly_before_it_is_taken_without_its_tag() -> None:
    there = model_catalog(OLLAMA, None, {})
    assert names(there, "llama3:8b") == ["ollama/llama3:8b"]
    assert names(there, "ollama/llama3:70b, mistral") == ["ollama/llama3:70b", "ollama/mistral:latest"]  # fmt: skip
    assert names(there, "phi3") == ["ollama/phi3:mini"]
    assert names(there, "Phi3,phi3:mini") == ["ollama/phi3:mini"], "the same one twice is one"


def test_a_name_that_may_mean_several_is_refused_with_them() -> None:
    assert refusal(model_catalog(OLLAMA, None, {}), "llama3").endswith(
        "may be any of: ollama/llama3:8b, ollama/llama3:70b"
    )


def test_the_latest_tag_is_what_a_bare_name_means_even_among_others() -> None:
    there = model_catalog(found("llama3:8b", "llama3:latest"), None, {})
    assert names(there, "llama3") == ["ollama/llama3:latest"]


def test_a_name_that_is_not_there_is_refused_with_what_is() -> None:
    told = refusal(model_catalog(OLLAMA, None, {}), "gpt-4")
    assert "no model 'gpt-4' is there" in told
    assert "ollama/phi3:mini" in told
    assert "matches no model" in refusal(model_catalog(OLLAMA, None, {}), " , ")


def test_a_category_runs_those_of_it_that_are_there(tmp_path: Path) -> None:
    there = model_catalog(OLLAMA, config(tmp_path, fast=["mistral", "gemma2"], none=["gemma2"]), {})
    chosen = choose(there, "fast")
    assert [offer.name for offer in chosen.offers] == ["ollama/mistral:latest"]
    assert "gemma2" in chosen.notices[0]
    assert "no model of the category 'none' (gemma2)" in refusal(there, "none")
    assert "categories: fast, none" in refusal(there, "what")


def test_a_configured_model_of_the_ollama_is_one_model_with_its_settings(tmp_path: Path) -> None:
    own = {"name": "mistral", "provider": "ollama", "display_name": "Mistral",
           "settings": {"temperature": 0.1}}  # fmt: skip
    there = model_catalog(OLLAMA, config(tmp_path, own), {})
    assert len(there.offers) == len(OLLAMA)
    (offer,) = choose(there, "Mistral").offers
    assert offer.spec.full_name == "ollama/mistral:latest"
    assert (offer.spec.label, offer.spec.parameters) == ("Mistral", {"temperature": 0.1})
    assert offer.digest == "d-mistral:latest"


def test_a_configured_model_that_the_ollama_lacks_is_told_with_how_to_get_it(
    tmp_path: Path,
) -> None:
    there = model_catalog(OLLAMA, config(tmp_path, {"name": "gemma2", "provider": "ollama"}), {})
    assert any("ollama pull gemma2" in notice for notice in choose(there, "all").notices)
    assert "ollama pull gemma2" in refusal(there, "ollama/gemma2")


def test_the_same_name_on_another_ollama_is_another_model(tmp_path: Path) -> None:
    far = {"name": "mistral:latest", "provider": "ollama", "base_url": "http://10.0.0.1:11434"}
    there = model_catalog(OLLAMA, config(tmp_path, far), {})
    (offer,) = choose(there, "mistral:latest").offers
    assert (offer.spec.base_url, offer.digest) == ("http://10.0.0.1:11434", None)


def test_a_model_without_its_key_or_switched_off_says_why(tmp_path: Path) -> None:
    keyed = {"name": "gpt-4", "provider": "openai", "api_key": "${NO_SUCH_KEY}"}
    off = {"name": "claude-3-opus", "provider": "anthropic", "enabled": False}
    there = model_catalog(OLLAMA, config(tmp_path, keyed, off), {})
    assert "NO_SUCH_KEY not set" in refusal(there, "gpt-4")
    assert "switched off" in refusal(there, "claude-3-opus")
    assert [n for n in choose(there, "all").notices if "claude" in n] == []


def test_a_model_may_be_configured_twice_with_other_settings_under_two_names(
    tmp_path: Path,
) -> None:
    cold, warm = (
        {"name": "mistral", "provider": "ollama", "display_name": f"Mistral {t}",
         "settings": {"temperature": t}}
        for t in (0, 1)
    )  # fmt: skip
    there = model_catalog(OLLAMA, config(tmp_path, cold, warm), {})
    chosen = choose(there, "all").offers
    assert [offer.spec.label for offer in chosen] == [None, None, "Mistral 0", "Mistral 1", None]
    assert [o.spec.parameters for o in chosen[2:4]] == [{"temperature": 0}, {"temperature": 1}]
    assert [o.spec.label for o in choose(there, "Mistral 1, mistral 0").offers] == [
        "Mistral 1",
        "Mistral 0",
    ]
    assert "the name of several models: Mistral 0, Mistral 1" in refusal(there, "mistral")


@pytest.mark.parametrize("shown", [{}, {"display_name": "Mine"}])
def test_two_models_with_nothing_to_tell_them_apart_are_refused(
    tmp_path: Path, shown: dict[str, str]
) -> None:
    pair = [
        {"name": "m", "provider": "openai-compatible", "base_url": f"http://127.0.0.1:{n}/v1", **shown}
        for n in (1, 2)
    ]  # fmt: skip
    with pytest.raises(UsageError, match="two models are called 'm'; give each a `display_name`"):
        model_catalog([], config(tmp_path, *pair), {})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"provider": "opnai"}, "model 'm': no provider is called 'opnai': did you mean 'openai'?"),
        ({"provider": "openai-compatible"}, "model 'm': say where it is, with `base_url: http"),
    ],
)
def test_a_model_that_cannot_be_is_told_with_its_file(
    tmp_path: Path, wrong: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        model_catalog([], config(tmp_path, {"name": "m", **wrong}), {})
    assert str(caught.value).startswith(f"{tmp_path / 'models_config.yaml'}:1: {told}")


@pytest.mark.parametrize(
    "names", [("org/m", "org_m"), ("org_m", "org/m"), ("M", "m"), ("a", "a:latest")]
)
def test_models_with_nearly_the_same_name_have_files_of_their_own(names: tuple[str, str]) -> None:
    files = file_names(dict(zip("ab", names, strict=True)))
    assert len({file.casefold() for file in files.values()}) == 2


def test_file_names_are_those_of_the_documents_and_never_meet() -> None:
    models = {
        n: n for n in ("ollama/llama2:latest", "ollama/mistral:7b", "gpt-4", "ollama/mistral_7b")
    }
    files = file_names(models)
    assert files["ollama/llama2:latest"] == "ollama_llama2_result.json"
    assert files["ollama/mistral:7b"] == "ollama_mistral_7b_result.json"
    assert files["gpt-4"] == "gpt-4_result.json"
    assert len(set(files.values())) == 4
    assert file_names({"it": "../../x"}) == {"it": "x_result.json"}


def test_two_models_of_one_name_are_told_apart_by_their_providers() -> None:
    pair = tuple(
        Candidate(id=p, model=ModelSpec(provider=p, name="gpt-4")) for p in ("openai", "azure")
    )
    assert names_of(pair) == {"openai": "openai/gpt-4", "azure": "azure/gpt-4"}


def test_one_model_configured_twice_is_called_as_it_is_displayed() -> None:
    pair = tuple(
        Candidate(id=label, model=ModelSpec(provider="openai", name="gpt-4", label=label))
        for label in ("Cold", "Warm")
    )
    other = Candidate(id="x", model=ModelSpec(provider="openai", name="gpt-5"))
    assert names_of((*pair, other)) == {"Cold": "Cold", "Warm": "Warm", "x": "gpt-5"}
