"""Money: a wrong price spends a budget that somebody set."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agent.llm.prices import FREE, Price, cost_usd, estimate_tokens, load_prices, price_for, worst_case_usd
from agent.llm.types import Usage
from tests.loopback import Loopback
from tests.unit.agent.llm.support import REQUEST, provider_for

PRICE = Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)


def test_the_shipped_table_loads_and_is_dated() -> None:
    table = load_prices()
    assert table.as_of.year >= 2026
    assert {"anthropic", "openai"} <= set(table.providers)
    for name, provider in table.providers.items():
        assert provider.source.startswith("https://"), name
        assert all(price.output >= price.input > 0 for price in provider.models.values()), name


def test_a_model_is_found_by_name_and_dated_name_and_not_by_mere_prefix() -> None:
    """`gpt-5` must not set the price of `gpt-5-pro`, which costs ten times as much."""
    table = load_prices()
    assert price_for("openai", "gpt-5-2025-08-07", table) == price_for("openai", "gpt-5", table)
    assert price_for("anthropic", "claude-opus-4-5-20251101", table) == price_for("anthropic", "claude-opus-4-5", table)
    assert price_for("openai", "gpt-5-pro", table) is None
    assert price_for("anthropic", "gpt-5", table) is None
    assert price_for("openai-compatible", "gpt-5", table) is None
    assert price_for("replay", "anything", table) == price_for("file", "", table) == FREE


def test_a_table_of_ones_own_with_patterns_replaces_the_shipped_one(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(
        "as_of: 2026-11-01\nproviders:\n  openai-compatible:\n    source: ours\n    models:\n"
        '      "*": {input: 0, output: 0}\n      "qwen*": {input: 1, output: 2}\n'
    )
    table = load_prices(str(file))
    assert price_for("openai-compatible", "qwen3-coder", table) == Price(input=1, output=2)
    assert price_for("openai-compatible", "llama", table) == Price(input=0, output=0)
    assert price_for("openai", "gpt-5", table) is None


@pytest.mark.parametrize("content", ["[", "3", "as_of: yesterday\nproviders: {}", "as_of: 2026-01-01\nprices: {}"])
def test_a_file_that_is_no_table_is_named_in_one_line(content: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(content)
    with pytest.raises(ValueError, match=str(file)) as caught:
        load_prices(str(file))
    assert "\n" not in str(caught.value)


def test_each_kind_of_token_has_its_own_price() -> None:
    usage = Usage(input=1_000_000, output=1_000_000, cache_read=1_000_000, cache_write=1_000_000)
    assert cost_usd(usage, PRICE) == pytest.approx(3.0 + 15.0 + 0.3 + 3.75)
    assert cost_usd(usage, Price(input=3.0, output=15.0)) == pytest.approx(3.0 * 3 + 15.0)


def test_unknown_is_none_and_never_free() -> None:
    assert cost_usd(Usage(), PRICE) is None
    assert cost_usd(Usage(input=5), PRICE) is None
    assert cost_usd(Usage(input=5, output=5), None) is None
    assert cost_usd(Usage(input=1000, output=0), PRICE) == pytest.approx(0.003)
    assert cost_usd(Usage(), FREE) == 0.0


def test_a_prompt_longer_than_the_price_holds_for_has_an_unknown_cost() -> None:
    """Long prompts are billed at a higher rate, so the short one would understate the spending."""
    limited = PRICE.model_copy(update={"up_to": 1000})
    assert cost_usd(Usage(input=900, output=1, cache_read=100), limited) is not None
    assert cost_usd(Usage(input=900, output=1, cache_read=101), limited) is None
    assert worst_case_usd(dataclasses.replace(REQUEST, prompt="x" * 10_000), limited) is None


def test_no_reply_costs_more_than_its_worst_case() -> None:
    """A budget that checks the worst case first can then not be overspent."""
    prompt = "for (int i = 0; i < n; ++i) { acc += A[i] * B[i]; }  // 漢字 ≤ 3\n" * 200
    request = dataclasses.replace(REQUEST, prompt=prompt, max_output_tokens=1000)
    with Loopback(lambda asked: "y" * 4000) as server:
        provider = provider_for("anthropic", server)
        worst, reply = provider.worst_case_usd(request), provider.complete(request)
        unknown = provider_for("anthropic", server, model="claude-unheard-of").worst_case_usd(request)
    assert worst is not None
    assert reply.usd is not None
    assert 0 < reply.usd <= worst
    assert unknown is None


def test_the_estimate_of_tokens_errs_on_the_high_side() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("abc") == 1
    assert estimate_tokens("abcd") == 2
    assert estimate_tokens("漢字") == 2


def test_a_batch_takes_the_providers_share_of_every_rate(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    model = "m: {input: 4, output: 20, cache_read: 0.4, up_to: 1000}"
    text = "as_of: 2026-11-01\nproviders:\n  openai:\n    source: s\n{}    models: {{{}}}\n"
    file.write_text(text.format("    batch: 0.25\n", model))
    table = load_prices(str(file))
    assert price_for("openai", "m", table, batch=True) == Price(input=1, output=5, cache_read=0.1, up_to=1000)
    assert price_for("openai", "m", table) == Price(input=4, output=20, cache_read=0.4, up_to=1000)
    file.write_text(text.format("", model))
    assert price_for("openai", "m", load_prices(str(file)), batch=True) is None
