"""What is wrong with the models of a run is one line before anything is measured, and not a surprise at night."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from agent.config import load_config
from agent.config_llm import LLMSection
from agent.role_checks import check_roles
from tests.loop.scenario import write_task

CLAUDE = {"provider": "anthropic", "model": "claude-opus-5", "mode": "batch"}
LOCAL = {"provider": "openai-compatible", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
DOCS = Path(__file__).parents[3] / "docs"


def problem(folder: Path, llm: Mapping[str, object], *overrides: str) -> str | None:
    config = load_config(write_task(folder, llm), overrides)
    assert config.llm is not None
    return check_roles(config, config.llm)


def test_a_model_that_would_write_nothing_is_named(tmp_path: Path) -> None:
    llm = {**LOCAL, "roles": {"branch": [{"model": name} for name in "abc"]}}
    found = problem(tmp_path, llm)
    assert found is not None
    assert found.startswith("llm.roles.branch: 3 models for search.branches = 2: the last would write nothing")
    assert problem(tmp_path, llm, "search.branches=3") is None


def test_batch_mode_with_no_batch_api_is_refused_and_one_is_enough(tmp_path: Path) -> None:
    local = {**LOCAL, "mode": "batch"}
    assert problem(tmp_path, local) == (
        "llm.mode: openai-compatible has no batch API here; those of anthropic and openai can be used"
    )
    assert problem(tmp_path, {**CLAUDE, "roles": {"branch": LOCAL}}) is not None
    assert problem(tmp_path, {**CLAUDE, "roles": {"branch": [LOCAL, {"model": "claude-opus-5"}]}}) is None
    assert problem(tmp_path, CLAUDE) is None


def test_a_dollar_budget_wants_the_batch_price(tmp_path: Path) -> None:
    table = tmp_path / "prices.yaml"
    head = "as_of: 2026-11-30\nproviders:\n  anthropic:\n    source: ours\n"
    text = head + "{}    models: {{'*': {{input: 5, output: 25}}}}\n"
    table.write_text(text.format(""))
    llm = {**CLAUDE, "prices": str(table)}
    assert problem(tmp_path, llm) is None
    found = problem(tmp_path, llm, "budget.usd=1")
    assert found is not None
    assert found.startswith("budget.usd: no batch price is known for anthropic claude-opus-5")
    table.write_text(text.format("    batch: 0.6\n"))
    assert problem(tmp_path, llm, "budget.usd=1") is None


def shown_configs() -> list[dict[str, Any]]:
    """Every `llm` section that docs/providers.md shows."""
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "providers.md").read_text(encoding="utf-8"), re.S)
    sections = [section for block in blocks for section in re.split(r"(?m)^(?=llm:)", block) if section.strip()]
    return [YAML(typ="safe", pure=True).load(section)["llm"] for section in sections]


def test_every_config_that_the_docs_show_is_one() -> None:
    shown = [LLMSection.model_validate(section) for section in shown_configs()]
    assert {section.provider for section in shown} >= {"anthropic", "openai", "bedrock", "vertex", "azure"}
    assert any(section.mode == "batch" for section in shown)
    assert any(len(section.roles.branch) == 4 for section in shown)


@pytest.mark.parametrize("key", sorted(set(LLMSection.model_fields) - {"provider", "model", "roles"}))
def test_every_key_of_the_section_is_in_the_docs(key: str) -> None:
    text = (DOCS / "providers.md").read_text(encoding="utf-8")
    assert f"`{key}`" in text or f"{key}:" in text
