"""What a command line makes of task files, folders and a night's own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.nightly.asked import Options, read_asked
from agent.paths import CONFIGS


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name in ("b", "a"):
        (folder / f"{name}.yaml").write_text(f"task: {{name: {name}}}\n")
    (folder / "prices.yaml").write_text("models: []\n")
    (folder / "night.yaml").write_text("tasks: [a.yaml]\n")
    (folder / "torn.yml").write_text("task: {name: [\n")
    return folder


def test_a_folder_stands_for_its_task_files_and_what_cannot_be_read_is_not_left_out(tasks: Path) -> None:
    asked = read_asked([str(tasks)], Options())
    assert [job.config.name for job in asked.jobs] == ["a.yaml", "b.yaml", "torn.yml"]


def test_a_folder_without_a_task_is_told_of(tasks: Path, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "empty").mkdir()
    assert len(read_asked([str(tasks), str(tmp_path / "empty")], Options(), said.append).jobs) == 3
    assert said == [f"{tmp_path}/empty: a folder without a task file"]


def test_a_file_that_is_gone_is_its_own_tasks_failure_and_shipped_tasks_go_by_name(tasks: Path) -> None:
    asked = read_asked(["quickstart", str(tasks / "gone.yaml")], Options(overrides=("search.branches=2",)))
    assert [job.config for job in asked.jobs] == [CONFIGS / "quickstart.yaml", tasks / "gone.yaml"]
    assert {job.overrides for job in asked.jobs} == {("search.branches=2",)}


def test_a_nights_file_resolves_against_its_folder_and_the_command_line_goes_first(tasks: Path) -> None:
    (tasks / "night.yaml").write_text(
        "tasks: [b.yaml, {config: a.yaml, set: [search.branches=1]}]\nset: [search.iterations=2]\n"
        "budget: {usd: 5, hours: 2}\noutput: /out\non_finish: notify --all\n"
    )
    asked = read_asked([str(tasks / "night.yaml")], Options(usd=1.5, overrides=("search.methods=1",)))
    assert [job.config.name for job in asked.jobs] == ["b.yaml", "a.yaml"]
    assert asked.jobs[1].overrides == ("search.iterations=2", "search.branches=1", "search.methods=1")
    assert (asked.budget.usd, asked.budget.hours) == (1.5, 2)
    assert (asked.output, asked.on_finish) == (Path("/out"), "notify --all")


def test_one_task_at_two_sizes_is_two_tasks_and_the_same_one_twice_is_one(tasks: Path) -> None:
    (tasks / "night.yaml").write_text("tasks: [a.yaml, a.yaml, {config: a.yaml, set: ['task.dims={N: 2}']}]\n")
    assert len(read_asked([str(tasks / "night.yaml")], Options()).jobs) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks: [a.yaml]\nbudgets: {usd: 1}\n", "did you mean `budget`"),
        ("tasks: [{config: a.yaml, sets: []}]\n", "did you mean `set`"),
        ("tasks: [a.yaml]\nbudget: {hours: 0}\n", "budget.hours"),
        ("tasks: []\n", "no task"),
    ],
)
def test_a_nights_file_that_is_wrong_says_where(tasks: Path, text: str, said: str) -> None:
    (tasks / "night.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_asked([str(tasks / "night.yaml")], Options())


def test_a_nights_file_beside_other_tasks_is_refused(tasks: Path) -> None:
    with pytest.raises(ConfigError, match="give it alone"):
        read_asked([str(tasks / "a.yaml"), str(tasks / "night.yaml")], Options())


def test_the_same_command_is_the_same_night_until_a_task_is_edited(tasks: Path) -> None:
    def night(*options: float) -> str:
        return read_asked([str(tasks / "a.yaml")], Options(usd=options[0] if options else None)).fingerprint()

    first = night()
    assert night() == first
    assert night(5.0) != first
    (tasks / "a.yaml").write_text("task: {name: edited}\n")
    assert night() != first
