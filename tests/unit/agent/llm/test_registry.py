"""Choosing a provider by config alone: what is wrong is said in one line, before anything is sent."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.llm.keys import read_key
from agent.llm.recording import RecordingProvider
from agent.llm.registry import PROVIDERS, check_settings, make_provider
from agent.llm.types import LLMSettings
from tests.loopback import Loopback
from tests.unit.agent.llm.support import KEY, REQUEST


def problem(settings: LLMSettings, **environ: str) -> str:
    found = check_settings(settings, environ)
    assert found is not None
    assert "\n" not in found
    assert KEY not in found
    return found


def loaded_after(statement: str) -> set[str]:
    """The SDKs that a fresh interpreter has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*[m for m in ('anthropic', 'openai', 'httpx2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_run_on_recordings_loads_no_sdk(tmp_path: Path) -> None:
    settings = f"LLMSettings('replay', answers={str(tmp_path)!r})"
    setup = "from agent.llm.registry import *\nfrom agent.llm.types import LLMSettings\n"
    assert loaded_after(f"{setup}make_provider({settings})") == set()
    assert loaded_after(f"{setup}check_settings(LLMSettings('openai', model='m'))") == set()


@pytest.mark.parametrize(("name", "other"), [("anthropic", "openai"), ("openai", "anthropic")])
def test_only_the_sdk_in_use_is_loaded(name: str, other: str) -> None:
    setup = "from agent.llm.registry import make_provider\nfrom agent.llm.types import LLMSettings\n"
    settings = f"LLMSettings({name!r}, model='m', api_key_env='K')"
    loaded = loaded_after(f"{setup}make_provider({settings}, environ={{'K': 'k'}})")
    assert name in loaded
    assert other not in loaded


def test_every_registered_provider_can_be_made(tmp_path: Path) -> None:
    for name in PROVIDERS:
        settings = LLMSettings(
            name,
            "m",
            base_url="http://localhost:1",
            answers=str(tmp_path),
            api_key_env="K",
            region="r",
            project="p",
            api_version="v",
        )
        assert make_provider(settings, environ={"K": "k"}).name == name


def test_an_unknown_name_suggests_the_nearest() -> None:
    assert "did you mean anthropic?" in problem(LLMSettings("antropic"))
    assert "there are anthropic, openai, openai-compatible, bedrock, vertex, azure, replay, file" in problem(
        LLMSettings("zzz")
    )
    with pytest.raises(ValueError, match="did you mean openai-compatible"):
        make_provider(LLMSettings("openai_compatible"))


def test_a_missing_key_names_where_it_was_looked_for(tmp_path: Path) -> None:
    assert "ANTHROPIC_API_KEY" in problem(LLMSettings("anthropic", "m"))
    assert "OPENAI_API_KEY" in problem(LLMSettings("openai", "m"))
    assert "MY_KEY" in problem(LLMSettings("openai", "m", api_key_env="MY_KEY"), OPENAI_API_KEY=KEY)
    assert "ANTHROPIC_API_KEY is empty" in problem(LLMSettings("anthropic", "m"), ANTHROPIC_API_KEY=" \n")
    assert str(tmp_path / "no") in problem(LLMSettings("anthropic", "m", api_key_file=str(tmp_path / "no")))


def test_a_key_in_the_place_of_its_variables_name_is_refused_and_not_shown() -> None:
    said = problem(LLMSettings("openai", "m", api_key_env=KEY))
    assert "llm.api_key_env must be the name" in said
    assert KEY not in said


def test_a_key_file_is_checked_and_its_newline_stripped(tmp_path: Path) -> None:
    """A newline in the key is an illegal header, which the SDKs report as a connection error."""
    file = tmp_path / "key"
    settings = LLMSettings("anthropic", "m", api_key_file=str(file))
    file.write_text(f"{KEY}\n")
    file.chmod(0o644)
    assert f"chmod 600 {file}" in problem(settings)
    file.chmod(0o600)
    assert check_settings(settings, {}) is None
    key = read_key(settings, {})
    assert key is not None
    assert key.get_secret_value() == KEY
    assert KEY not in repr(key)
    file.write_text(f"{KEY}\nand more\n")
    assert "one word" in problem(settings)
    file.write_text("")
    assert "is empty" in problem(settings)


def test_a_command_gives_the_key_once_and_what_it_prints_is_never_shown(tmp_path: Path) -> None:
    """Keys live in password stores: one must not be unlocked for every request, nor what it says be shown."""
    script, count = tmp_path / "ask", tmp_path / "count"
    script.write_text(f"#!/bin/sh\necho x >> {count}\necho {KEY}\necho noise >&2\nexit ${{1:-0}}\n")
    script.chmod(0o755)
    settings = LLMSettings("anthropic", "m", api_key_command=str(script), api_key_file=str(tmp_path / "unused"))
    for _ in range(3):
        assert check_settings(settings, {}) is None
    key = read_key(settings, {})
    assert key is not None
    assert key.get_secret_value() == KEY
    assert count.read_text() == "x\n"
    said = problem(LLMSettings("anthropic", "m", api_key_command=f"{script} 3"))
    assert f"`{script} 3` ended with exit code 3" in said
    assert KEY not in said
    assert "cannot be run: No such file" in problem(LLMSettings("anthropic", "m", api_key_command=str(tmp_path / "no")))
    assert "cannot be read" in problem(LLMSettings("anthropic", "m", api_key_command="pass 'show"))
    assert "is empty" in problem(LLMSettings("anthropic", "m", api_key_command="true"))


def test_a_local_server_needs_no_key_and_is_not_sent_the_one_of_openai() -> None:
    with Loopback(lambda asked: "fine") as server:
        settings = LLMSettings("openai-compatible", "m", base_url=server.v1_url)
        make_provider(settings, environ={"OPENAI_API_KEY": KEY}).complete(REQUEST)
        assert KEY not in str(server.asked[0].headers)


def test_addresses_are_checked() -> None:
    key = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
    assert "llm.base_url is missing" in problem(LLMSettings("openai-compatible", "m"))
    assert "http://" in problem(LLMSettings("openai-compatible", "m", base_url="localhost:8000"))
    doubled = problem(LLMSettings("anthropic", "m", base_url="https://me:secret@gateway/v1/"), **key)
    assert "use 'https://gateway'" in doubled
    assert "secret" not in doubled
    from_environment = problem(LLMSettings("anthropic", "m"), ANTHROPIC_BASE_URL="https://gateway/v1", **key)
    assert from_environment.startswith("ANTHROPIC_BASE_URL")


@pytest.mark.skipif(importlib.util.find_spec("socksio") is not None, reason="socksio is installed: SOCKS works here")
def test_a_socks_proxy_that_no_client_could_use_is_named() -> None:
    program = (
        "from agent.llm.registry import make_provider\nfrom agent.llm.types import LLMSettings\n"
        "try:\n    make_provider(LLMSettings('openai', model='m', api_key_env='K'), environ={'K': 'k'})\n"
        "except ValueError as error:\n    print(error)\n"
    )
    environ = {**os.environ, "ALL_PROXY": "socks5://127.0.0.1:1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ)
    assert done.stdout.startswith("the environment sets a SOCKS proxy (all_proxy)")
    assert done.stderr == ""


def test_a_missing_model_is_named() -> None:
    for name in ("anthropic", "openai", "openai-compatible"):
        assert "llm.model is missing" in problem(LLMSettings(name))


def test_missing_answers_are_named(tmp_path: Path) -> None:
    assert "llm.answers is missing" in problem(LLMSettings("replay"))
    assert "llm.answers is missing" in problem(LLMSettings("file"))
    assert str(tmp_path / "no") in problem(LLMSettings("replay", answers=str(tmp_path / "no")))
    (tmp_path / "a file").touch()
    assert "is not a folder" in problem(LLMSettings("file", answers=str(tmp_path / "a file")))
    assert check_settings(LLMSettings("file", answers=str(tmp_path / "made when needed")), {}) is None


def test_a_broken_price_table_is_found_before_the_run(tmp_path: Path) -> None:
    table = tmp_path / "prices.yaml"
    table.write_text("as_of: 2026-01-01\nproviders: {openai: {source: x, models: {m: {input: -1, output: 1}}}}\n")
    found = problem(LLMSettings("openai", "m", prices=str(table)), OPENAI_API_KEY=KEY)
    assert "providers.openai.models.m.input" in found


def test_recording_is_a_switch_on_any_provider(tmp_path: Path) -> None:
    settings = LLMSettings("file", answers=str(tmp_path / "a"), record=str(tmp_path / "r"))
    assert isinstance(make_provider(settings), RecordingProvider)
