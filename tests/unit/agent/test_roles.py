"""What a user loses when roles go wrong: the expensive model for every request, or a key sent to another server."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import load_config
from agent.config_llm import LLMSection
from agent.errors import ConfigError, ModelUnusable
from agent.llm.types import LLMSettings, Provider, Step
from agent.roles import Providers, Roles
from agent.run_checks import check_llm
from tests.loop.scenario import write_task

PLAN, ABLATE = Step(1, "plan"), Step(1, "ablate", "memory.loop_interchange")


def roles(**given: object) -> Roles:
    section = {"provider": "anthropic", "model": "large", "api_key_env": "LARGE_KEY", "temperature": 0.5}
    return Roles(LLMSection.model_validate({**section, "roles": given}))


def test_each_step_has_its_roles_model_and_branches_take_theirs_in_turn() -> None:
    found = roles(plan={"model": "larger"}, branch=[{"model": "small"}, {"model": "smaller"}])
    assert found.of(PLAN).model == "larger"
    assert found.of(ABLATE).model == "large"
    models = [found.of(Step(1, "branch", f"b{i}")).model for i in range(3)]
    assert models == ["small", "smaller", "small"]
    assert found.of(Step(1, "repair", "b1", 0)).model == "smaller"
    assert found.of(Step(1, "branch", "b1", 1)).model == "smaller"


def test_a_model_for_repairs_goes_before_the_branches_own() -> None:
    found = roles(branch={"model": "small"}, repair={"model": "patient"})
    assert found.of(Step(2, "repair", "b0")).model == "patient"
    assert found.of(Step(2, "branch", "b0")).model == "small"


def test_a_role_with_a_provider_of_its_own_takes_no_key_and_no_address_over() -> None:
    """One provider's key must never be sent to another's server."""
    found = roles(branch={"provider": "openai-compatible", "model": "m", "base_url": "http://127.0.0.1:1/v1"})
    settings = found.of(Step(1, "branch", "b0"))
    assert (settings.api_key_env, settings.temperature) == (None, None)
    assert settings.base_url == "http://127.0.0.1:1/v1"
    elsewhere = roles(branch={"base_url": "http://gateway"}).of(Step(1, "branch", "b0"))
    assert (elsewhere.model, elsewhere.api_key_env) == ("large", None)
    other = roles(branch={"api_key_file": "/keys/other"}).of(Step(1, "branch", "b0"))
    assert (other.api_key_env, other.api_key_file) == (None, "/keys/other")
    same = roles(branch={"model": "small"}).of(Step(1, "branch", "b0"))
    assert (same.api_key_env, same.temperature) == ("LARGE_KEY", 0.5)


def test_a_provider_is_made_once_and_only_when_it_is_asked() -> None:
    made: list[LLMSettings] = []

    class Made:
        name = "made"

    def make(settings: LLMSettings) -> Provider:
        made.append(settings)
        return Made()  # type: ignore[return-value]

    providers = Providers(roles(branch=[{"model": "a"}, {"model": "b"}]), make)
    assert made == []
    first = providers(Step(1, "branch", "b0"))
    assert providers(Step(2, "branch", "b2")) is first
    assert [settings.model for settings in made] == ["a"]


def test_every_roles_model_is_checked_before_anything_is_measured(tmp_path: Path) -> None:
    """A typo in the repair model must not show at three in the morning."""
    llm = {"provider": "replay", "answers": "answers"}
    (tmp_path / "answers").mkdir()
    config = load_config(write_task(tmp_path, {**llm, "roles": {"repair": {"provider": "openai"}}}))
    with pytest.raises(ConfigError, match=r"^llm\.roles\.repair: llm\.model is missing"):
        check_llm(config)
    keyless = {"branch": [{"provider": "openai", "model": "m", "api_key_env": "NO_SUCH_KEY"}]}
    config = load_config(write_task(tmp_path, {**llm, "roles": keyless}))
    with pytest.raises(ModelUnusable, match=r"^llm\.roles\.branch\[0\]: provider openai: no API key"):
        check_llm(config)


def test_a_role_nobody_knows_is_refused_and_paths_resolve_against_the_file(tmp_path: Path) -> None:
    llm = {"provider": "replay", "answers": "answers"}
    with pytest.raises(ConfigError, match=r"llm\.roles\.planner: unknown key; did you mean `plan`"):
        load_config(write_task(tmp_path, {**llm, "roles": {"planner": {"model": "m"}}}))
    with pytest.raises(ConfigError, match=r"modl: unknown key; did you mean `model`"):
        load_config(write_task(tmp_path, {**llm, "roles": {"plan": {"modl": "m"}}}))
    config = load_config(write_task(tmp_path, {**llm, "roles": {"branch": {"provider": "file", "answers": "asked"}}}))
    assert config.llm is not None
    assert config.llm.roles.branch[0].answers == tmp_path / "asked"
