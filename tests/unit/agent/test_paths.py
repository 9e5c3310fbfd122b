"""Run folders and the cache: what cron finds in the morning, and what a user without a HOME gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import ConfigError, UnfitEnvironment
from agent.paths import cache_folder, find_config, new_run_folder, remove_run_folder


def test_without_a_home_builds_are_still_cached_between_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    folder = cache_folder()
    assert folder.is_absolute()
    assert cache_folder() == folder
    assert list(tmp_path.iterdir()) == []


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here" / "roofclimb"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "roofclimb"


def test_latest_points_at_the_newest_run_and_back_when_one_is_taken_back(tmp_path: Path) -> None:
    first = new_run_folder(tmp_path / "runs")
    second = new_run_folder(tmp_path / "runs")
    latest = tmp_path / "runs" / "latest"
    assert first != second
    assert latest.resolve() == second
    assert os.readlink(latest) == second.name
    remove_run_folder(second)
    assert latest.resolve() == first
    remove_run_folder(first)
    assert not (tmp_path / "runs").exists()


def test_an_output_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnfitEnvironment, match="file/runs"):
        new_run_folder(tmp_path / "file" / "runs")


def test_a_shipped_task_is_found_by_name_and_an_unknown_one_lists_them(tmp_path: Path) -> None:
    assert find_config("quickstart").name == "quickstart.yaml"
    assert find_config("configs/softmax_cpu.yaml").name == "softmax_cpu.yaml"
    with pytest.raises(ConfigError, match="quickstart"):
        find_config("quickstar")
