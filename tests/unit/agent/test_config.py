"""What a user types wrong must come back as one line that says where and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import dump_config, load_config, parse_assignments
from agent.errors import ConfigError

TASK = """
task:
  name: gemm
  baseline: k.cpp
  reference: r.py
  dims: {M: 1e3, No: 010}
  tolerance: {atol: 1e-5, rtol: "1e-3"}
  build: {include: [inc]}
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "k.cpp").write_text("")
    (tmp_path / "r.py").write_text("")
    path = tmp_path / "task.yaml"
    path.write_text(TASK)
    return path


def test_numbers_that_yaml_1_1_would_read_as_text_are_numbers(task: Path) -> None:
    config = load_config(task)
    assert config.task.dims == {"M": 1000, "No": 10}
    assert config.task.tolerance is not None
    assert (config.task.tolerance.atol, config.task.tolerance.rtol) == (1e-5, 1e-3)


def test_inputs_resolve_against_the_file_and_output_against_the_working_directory(
    task: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    config = load_config(task)
    assert config.task.baseline == tmp_path / "k.cpp"
    assert config.task.build.include == (tmp_path / "inc",)
    assert config.output == elsewhere / "runs"
    assert config.memory.url == f"sqlite:///{elsewhere}/.roofclimb/memory.db"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("serch.branches=2", "serch: unknown key; did you mean `search`?"),
        ("search.branchs=2", "search.branchs: unknown key; did you mean `branches`?"),
        ("task.tolerance.attol=1", "did you mean `atol`?"),
        ("task.tensors.A.shap=[M]", "task.tensors.A."),
        ("task.dims.M=4096,", "task.dims.M: '4096,' is not a whole number"),
        ("task.dims.M=0", "task.dims.M"),
        ("task.dims.M=true", "task.dims.M"),
        ("search.noise=x", "search.noise"),
        ("search.repairs=4", "search.repairs"),
        ("task.baseline=nowhere.cpp", "task.baseline: no file at"),
        ("llm.model=x", "llm.provider: is required"),
        ("device.gpus=0", "--set device.gpus=0: device.gpus: write all, or a list"),
        ("device.gpus=[x]", "device.gpus.0: write all, or a list"),
        ("executor=kubernetes", "executor.kind: input should be 'local' or 'ray'"),
        ("executor.adress=auto", "executor.adress: unknown key; did you mean `address`?"),
        ("device.arch=sm90", "device.arch: write it as sm_90"),
        ("task.dims=3", "task.dims: write each dim with its size"),
        ("task.build.flags=-O3", "task.build.flags: input should be a list (got '-O3')"),
        ("branches", "write it as section.key=value"),
        ("task.dims.M.x=1", "`M` is a value, not a section"),
    ],
)
def test_a_wrong_key_or_value_is_named(task: Path, override: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(task, [override])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_an_error_of_the_file_is_not_laid_to_set(task: Path) -> None:
    task.write_text(task.read_text(encoding="utf-8") + "\ndevice: {arch: sm90}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"^{task}: device\.arch: "):
        load_config(task, ["search.branches=2"])


def test_a_duplicate_key_is_an_error_and_not_the_last_one(task: Path) -> None:
    task.write_text(TASK + "  dims: {M: 1}\n")
    with pytest.raises(ConfigError, match="line"):
        load_config(task)


def test_a_missing_file_and_text_that_is_no_mapping_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ConfigError, match="holds no mapping"):
        load_config(tmp_path / "list.yaml")


def test_a_config_written_into_a_run_folder_reads_back_equal(task: Path, tmp_path: Path) -> None:
    config = load_config(task, ["search.branches=2", "budget.usd=1.5", "executor=ray"])
    dump_config(config, tmp_path / "again.yaml")
    assert load_config(tmp_path / "again.yaml") == config


def test_assignments_are_yaml_values() -> None:
    assert parse_assignments(["M=512", "alpha=1e-3"], "--dim") == {"M": 512, "alpha": 1e-3}
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        parse_assignments(["M"], "--dim")
