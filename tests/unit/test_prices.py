"""What models charge: found by pattern, computed from counts, unknown where nothing tells it."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.app.pricing import Prices, packaged, read_prices
from bakeoff.core.budget import Price, Tariff, most_input
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import UNKNOWN_USAGE, Request, Tool, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.models.providers import PROVIDERS

OWN = """
local = ["my-rack"]
[[price]]
models = ["openai/*"]
input = 1
output = 2
[[price]]
models = ["openai/gpt-4*", "acme/gpt-4*"]
input = 3
output = 4
[[price]]
models = ["ollama/rented"]
input = 5
output = 6
"""


def spec(name: str, **parameters: Any) -> ModelSpec:
    provider, _, model = name.partition("/")
    return ModelSpec(provider=provider, name=model, parameters=parameters)


def own(tmp_path: Path, text: str = OWN) -> Prices:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    return Prices(read_prices(path))


def request(*texts: str, **parameters: Any) -> Request:
    messages = tuple(Message(role="user", content=text) for text in texts)
    return Request(messages=messages, parameters=parameters)


class TestTables:
    def test_the_packaged_table_is_dated_and_sane(self) -> None:
        table = packaged()
        assert table.date is not None
        assert date.fromisoformat(table.date) <= date(2100, 1, 1)
        assert len(table.price) >= 24
        providers = {pattern.partition("/")[0] for e in table.price for pattern in e.models}
        assert {"openai", "anthropic", "google", "mistral", "deepseek", "groq"} <= providers
        assert providers <= set(PROVIDERS)
        for entry in table.price:
            assert entry.input <= entry.output
            assert (entry.cached or 0) <= entry.input

    def test_no_pattern_stands_there_twice(self) -> None:
        patterns = [pattern for entry in packaged().price for pattern in entry.models]
        assert len(patterns) == len(set(patterns))

    @pytest.mark.parametrize(
        ("name", "output"),
        [
            ("openai/gpt-4o", 10),
            ("openai/gpt-4o-mini", 0.6),
            ("openai/gpt-4o-mini-2024-07-18", 0.6),
            ("openai-responses/gpt-5-mini", 2),
            ("anthropic/claude-opus-4-5-20251101", 25),
            ("anthropic/claude-opus-4-20250514", 75),
            ("google/gemini-2.5-flash-lite", 0.4),
            ("groq/openai/gpt-oss-20b", 0.5),
        ],
    )
    def test_a_known_model_has_its_price(self, name: str, output: float) -> None:
        price = Prices().tariff(spec(name)).price
        assert price is not None
        assert price.output == output

    @pytest.mark.parametrize(
        "name",
        ["openai/gpt-4o-audio-preview", "openai-compatible/gpt-4o", "python/mine", "azure/x"],
    )
    def test_a_model_that_no_table_knows_has_an_unknown_price_and_may_be_billed(
        self, name: str
    ) -> None:
        tariff = Prices().tariff(spec(name))
        assert (tariff.price, tariff.billed) == (None, True)

    @pytest.mark.parametrize("name", ["ollama/llama3", "embedded/smollm2-135m", "vllm/x"])
    def test_nobody_sends_a_bill_for_a_local_model(self, name: str) -> None:
        tariff = Prices().tariff(spec(name))
        assert (tariff.price, tariff.billed) == (None, False)
        assert tariff.priced(Usage(input_tokens=5, output_tokens=5)).cost_usd is None

    def test_the_persons_own_file_wins_and_its_longest_pattern_too(self, tmp_path: Path) -> None:
        prices = own(tmp_path)
        found = {
            name: tariff.price.input
            for name in ("openai/gpt-4o", "openai/o3", "acme/gpt-4", "groq/llama-3.1-8b-instant")
            if (tariff := prices.tariff(spec(name))).price
        }
        assert found == {
            "openai/gpt-4o": 3,
            "openai/o3": 1,
            "acme/gpt-4": 3,
            "groq/llama-3.1-8b-instant": 0.05,
        }

    def test_a_person_may_price_a_local_model_and_name_local_providers(
        self, tmp_path: Path
    ) -> None:
        prices = own(tmp_path)
        assert prices.tariff(spec("ollama/rented")).billed
        assert not prices.tariff(spec("my-rack/x")).billed

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ('[[price]]\nmodels = ["a"]\ninput = 1', "output"),
            (
                '[[price]]\nmodels = ["a"]\ninput = -1\noutput = 1',
                ":3: key 'price[0].input': a number of 0 or more",
            ),
            (
                '[[price]]\nmodels = ["a"]\ninput = 1\noutput = 1\ncashed = 1',
                "did you mean 'cached'",
            ),
            ("prices = []", "did you mean 'price'"),
            ("[[price", "not valid TOML"),
        ],
    )
    def test_a_mistake_in_it_is_told_with_the_file(
        self, tmp_path: Path, text: str, told: str
    ) -> None:
        with pytest.raises(UsageError, match=r"prices\.toml") as caught:
            own(tmp_path, text)
        assert told in str(caught.value)

    def test_a_file_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            read_prices(tmp_path / "none.toml")


class TestCosts:
    PRICE = Price(input=2.0, output=8.0, cached=0.5)

    def test_cached_tokens_are_cheaper_and_part_of_the_input(self) -> None:
        usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
        assert self.PRICE.cost(usage) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1 * 8)

    def test_without_a_word_about_a_cache_all_of_it_has_the_full_price(self) -> None:
        usage = Usage(input_tokens=1_000_000, cached_tokens=None, output_tokens=0)
        assert self.PRICE.cost(usage) == 2.0

    @pytest.mark.parametrize("missing", ["input_tokens", "output_tokens"])
    def test_a_count_that_is_missing_makes_the_cost_unknown(self, missing: str) -> None:
        usage = Usage(**{"input_tokens": 5, "output_tokens": 5, missing: None})
        assert self.PRICE.cost(usage) is None

    def test_what_the_provider_says_is_preferred(self) -> None:
        usage = Usage(input_tokens=10, output_tokens=10, cost_usd=0.125)
        assert Tariff(price=self.PRICE).priced(usage) == usage

    def test_without_a_price_the_cost_is_unknown_and_not_nothing(self) -> None:
        assert Tariff().priced(Usage(input_tokens=10, output_tokens=10)).cost_usd is None
        assert Tariff(price=self.PRICE).priced(UNKNOWN_USAGE).cost_usd is None


class TestBounds:
    TARIFF = Tariff(price=Price(input=1.0, output=10.0, max_output=1000))

    def test_the_models_own_parameters_go_over_those_of_the_request(self) -> None:
        tariff = Tariff(parameters={"max_tokens": 7})
        assert tariff.most_output({"max_tokens": 99}) == 7

    @pytest.mark.parametrize(
        ("parameters", "most"),
        [
            ({}, 1000),
            ({"max_tokens": 50}, 50),
            ({"max_completion_tokens": 60}, 60),
            ({"max_tokens": 50, "max_completion_tokens": 60}, 60),
            ({"max_output_tokens": 70}, 70),
            ({"max_tokens": 50, "n": 3}, 150),
            ({"max_tokens": True}, 1000),
            ({"max_tokens": "many"}, 1000),
            ({"max_tokens": -1}, 1000),
        ],
    )
    def test_an_answer_is_as_long_as_the_request_or_the_model_lets_it(
        self, parameters: dict[str, Any], most: int
    ) -> None:
        assert self.TARIFF.most_output(parameters) == most

    def test_without_any_limit_the_bound_is_unknown(self) -> None:
        bound = Tariff(price=Price(input=1.0, output=10.0)).bound(request("hi"))
        assert (bound.usd, bound.tokens) == (None, None)

    def test_what_is_free_is_bounded_without_a_limit(self) -> None:
        assert Tariff(price=Price(input=0.0, output=0.0)).bound(request("hi")).usd == 0.0
        assert Tariff(billed=False).bound(request("hi")).usd == 0.0

    @given(st.lists(st.text(), min_size=1), st.text(), st.text())
    def test_no_request_has_more_tokens_than_its_bound(
        self, texts: list[str], name: str, arguments: str
    ) -> None:
        call = ToolCall(id="1", name=name, arguments=arguments)
        asked = Request(
            messages=(
                *(Message(role="user", content=text) for text in texts),
                Message(role="assistant", content="", tool_calls=(call,)),
            ),
            tools=(Tool(name=name, description=arguments, parameters={"a": name}),),
            schema={"b": arguments},
        )
        everything = "".join((*texts, name, arguments, name, arguments, name, arguments))
        assert most_input(asked) >= len(everything.encode("utf-8", "surrogatepass"))
