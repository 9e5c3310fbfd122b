from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memory.store import Store
from tests.unit.memory.records import record

ROOT = Path(__file__).parents[3]


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/memory.db"
    with Store(url) as store:
        store.add(
            [
                record("tiling", "simd", parameters={"tiling": {"bm": 64}}, lesson="Tile for L2"),
                record("prefetch", outcome="negative", effect=0.97, iteration=2),
                record("unroll", outcome="rejected", reason="build: no such intrinsic", iteration=3),
            ]
        )
    return url


def memory(*arguments: str, cwd: Path = ROOT, stdin: str = "") -> subprocess.CompletedProcess[str]:
    program = "from agent.memory_cli import memory_group; memory_group()"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_list_shows_each_record_with_its_evidence(url: str) -> None:
    lines = memory("list", "--url", url).stdout.splitlines()
    assert len(lines) == 3
    assert "tiling + simd: 1.50x [1.48, 1.52] on gemm/cpp/x86_64/1e8" in lines[0]
    assert "rejected  unroll: rejected: build: no such intrinsic" in lines[2]


def test_list_json_is_one_object_and_filters(url: str) -> None:
    listed = as_json(memory("list", "--url", url, "--json"))
    assert [entry["outcome"] for entry in listed["records"]] == ["positive", "negative", "rejected"]
    assert listed["records"][0]["strategy"] == {"methods": ["tiling", "simd"], "parameters": {"tiling": {"bm": 64}}}
    assert listed["records"][2]["effect"] is None
    narrowed = as_json(memory("list", "--url", url, "--json", "--outcome", "negative", "--method", "prefetch"))
    assert [entry["iteration"] for entry in narrowed["records"]] == [2]
    assert as_json(memory("list", "--url", url, "--json", "--family", "softmax"))["records"] == []
    assert as_json(memory("list", "--url", url, "--json", "--limit", "1"))["records"][0]["iteration"] == 3


def test_listing_before_the_first_run_is_empty_and_makes_no_file(tmp_path: Path) -> None:
    done = memory("list", "--url", f"sqlite:///{tmp_path}/none.db", "--json")
    assert as_json(done)["records"] == []
    assert "no strategy memory at" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_show_has_the_whole_record(url: str) -> None:
    shown = as_json(memory("show", "1", "--url", url, "--json"))
    assert (shown["id"], shown["lesson"], shown["versions"]["g++"]) == (1, "Tile for L2", "12.2.0")
    text = memory("show", "1", "--url", url).stdout
    assert shown["fingerprint"] in text
    assert "Tile for L2" in text


def test_show_of_nothing_ends_with_2_and_one_line(url: str) -> None:
    done = memory("show", "99", "--url", url, "--json")
    message = f"no record 99 in {url}; `memory list` shows the ids"
    assert (done.returncode, done.stderr) == (2, f"roofclimb: {message}\n")
    assert json.loads(done.stdout) == {"error": message, "exit_code": 2}


def test_export_and_import_move_a_memory(url: str, tmp_path: Path) -> None:
    file, other = tmp_path / "out.json", f"sqlite:///{tmp_path}/other/memory.db"
    exported = as_json(memory("export", str(file), "--url", url, "--json"))
    assert exported == {"url": url, "file": str(file), "records": 3}
    assert memory("export", "--url", url).stdout == file.read_text()
    assert as_json(memory("import", str(file), "--url", other, "--json")) == {"url": other, "imported": 3, "known": 0}
    again = as_json(memory("import", "-", "--url", other, "--json", stdin=file.read_text()))
    assert (again["imported"], again["known"]) == (0, 3)
    assert memory("export", "--url", other).stdout == file.read_text()


def test_a_bad_import_names_the_place_and_writes_nothing(url: str, tmp_path: Path) -> None:
    bad, other = tmp_path / "bad.json", tmp_path / "other.db"
    bad.write_text(memory("export", "--url", url).stdout.replace('"effect": 0.97', '"effect": -1'))
    done = memory("import", str(bad), "--url", f"sqlite:///{other}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"roofclimb: {bad}: entry 1, field effect: ")
    assert done.stderr.count("\n") == 1
    assert not other.exists()


def test_a_backup_that_cannot_be_written_leaves_the_old_one(url: str, tmp_path: Path) -> None:
    done = memory("export", "/proc/none/out.json", "--url", url)
    assert done.returncode == 2
    assert done.stderr == "roofclimb: cannot write /proc/none/out.json: No such file or directory\n"


def test_exporting_a_memory_that_is_not_there_fails(tmp_path: Path) -> None:
    """A backup script with a typing error would back up nothing, night after night."""
    done = memory("export", str(tmp_path / "out.json"), "--url", f"sqlite:///{tmp_path}/typo.db")
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_broken_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_text("garbage " * 100)
    done = memory("list", "--url", f"sqlite:///{tmp_path}/memory.db", "--json")
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (2, 2)
    assert done.stderr.count("\n") == 1
    assert "file is not a database" in done.stderr


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    done = memory("show", "1", "--url", f"sqlite:///{tmp_path}/none.db", "--debug")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("roofclimb: no strategy memory at")


@pytest.mark.parametrize("command", ["import", "export"])
def test_a_path_that_is_no_file_is_an_error_a_script_can_read(command: str, url: str, tmp_path: Path) -> None:
    done = memory(command, str(tmp_path), "--url", url, "--json")
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (2, 2)
    assert "Is a directory" in done.stderr


def test_an_empty_list_prints_nothing(url: str) -> None:
    """A script counts lines; a person is told on stderr that the filter found nothing."""
    done = memory("list", "--url", url, "--family", "softmax")
    assert done.stdout == ""
    assert "no such record in" in done.stderr


def test_the_exported_document_is_the_same_as_json(url: str) -> None:
    text, data = memory("export", "--url", url).stdout, as_json(memory("export", "--url", url, "--json"))
    assert json.loads(text) == data


def test_the_default_memory_is_in_the_working_directory(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/.roofclimb/memory.db") as store:
        store.add([record()])
    assert len(as_json(memory("list", "--json", cwd=tmp_path))["records"]) == 1


def test_help_does_not_wait_for_the_database_library() -> None:
    program = "import sys, agent.memory_cli; print(sorted({'sqlalchemy', 'pydantic'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "kernel.cpp").write_text(
        'extern "C" void solve(const float* A, float* C, int N) { C[0] = A[0] * N; }\n'
    )
    path = tmp_path / "task.yaml"
    path.write_text("task: {name: gemm_small, baseline: kernel.cpp, dims: {M: 512, N: 512, K: 512}}\n")
    return path


def test_explain_says_what_a_run_would_be_told_and_why(task: Path, url: str) -> None:
    told = as_json(memory("explain", str(task), "--url", url, "--arch", "x86_64", "--json"))
    assert told["scope"] == {"family": "gemm", "backend": "cpp", "arch": "x86_64", "shape_class": "1e8"}
    assert {tuple(s["methods"]): s["status"] for s in told["strategies"]} == {
        ("prefetch",): "blocked",
        ("unroll",): "blocked",
        ("tiling", "simd"): "preferred",
    }
    assert "tiling + simd (tiling: bm 64): 1.50x" in told["prompt"]
    assert "What earlier runs noted:\n- Tile for L2" in told["prompt"]
    said = memory("explain", str(task), "--url", url, "--arch", "x86_64").stdout
    assert told["prompt"].strip() in said
    assert "blocked    record 2, prefetch: failed here, weight" in said


def test_explain_shows_how_far_the_evidence_is(task: Path, url: str) -> None:
    further = ("--url", url, "--arch", "aarch64", "--set", "task.shape_class=1e10", "--json")
    (best, *_) = as_json(memory("explain", str(task), *further))["strategies"]
    assert best["status"] == "preferred"
    assert best["terms"] == {"family": 0, "backend": 0, "arch": 3, "shape": 1}
    assert best["distance"] == 4


def test_explain_takes_the_gpu_that_is_here_or_asks_for_an_architecture(url: str) -> None:
    done = memory("explain", "gemm", "--url", url)
    if done.returncode:
        assert done.returncode == 2
        assert "none is here; name one with --arch" in done.stderr
    else:
        assert done.stdout.startswith("gemm_fp32 is gemm/cuda/sm_")
    assert "gemm_fp32 is" in memory("explain", "gemm", "--url", url, "--arch", "sm_90").stdout


def test_explain_keeps_to_the_tokens_of_the_task(task: Path, url: str) -> None:
    short = ("--url", url, "--arch", "x86_64", "--set", "memory.tokens=40", "--json")
    told = as_json(memory("explain", str(task), *short))
    assert "and 2 more that have no room here" in told["prompt"]
    assert told["more_blocked"] == 2


def test_explain_without_a_memory_says_so_and_tells_nothing(task: Path, tmp_path: Path) -> None:
    none = f"sqlite:///{tmp_path}/none.db"
    done = memory("explain", str(task), "--url", none, "--json")
    assert as_json(done)["prompt"] == ""
    assert "no strategy memory at" in done.stderr
    assert not (tmp_path / "none.db").exists()


def test_prune_lists_first_and_forgets_only_when_told(url: str, tmp_path: Path) -> None:
    """A typing error in a filter would empty a year's memory."""
    saved, other = tmp_path / "forgotten.json", f"sqlite:///{tmp_path}/other.db"
    listed = memory("prune", "--url", url, "--outcome", "rejected")
    assert listed.stdout.splitlines()[-1] == "1 records would be forgotten; --yes does it"
    assert len(as_json(memory("list", "--url", url, "--json"))["records"]) == 3
    done = as_json(memory("prune", "--url", url, "--id", "2", "--id", "3", "--yes", "--save", str(saved), "--json"))
    assert [entry["id"] for entry in done["records"]] == [2, 3]
    assert [entry["id"] for entry in as_json(memory("list", "--url", url, "--json"))["records"]] == [1]
    assert as_json(memory("import", str(saved), "--url", other, "--json"))["imported"] == 2


def test_prune_by_age_keeps_what_is_young(url: str) -> None:
    assert as_json(memory("prune", "--url", url, "--older-than", "1", "--yes", "--json"))["records"] == []
    assert len(as_json(memory("prune", "--url", url, "--older-than", "0", "--json"))["records"]) == 3


def test_prune_without_a_filter_is_refused(url: str) -> None:
    done = memory("prune", "--url", url, "--yes")
    assert done.returncode == 2
    assert "say which records" in done.stderr
    assert len(as_json(memory("list", "--url", url, "--json"))["records"]) == 3


def test_stats_count_by_scope_outcome_and_method(url: str) -> None:
    counted = as_json(memory("stats", "--url", url, "--json"))
    assert (counted["records"], counted["runs"], counted["lessons"]) == (3, 1, 1)
    assert counted["outcomes"] == {"positive": 1, "negative": 1, "rejected": 1}
    assert counted["scopes"] == {"gemm/cpp/x86_64/1e8": {"positive": 1, "negative": 1, "rejected": 1}}
    assert counted["methods"] == {"tiling": 1, "simd": 1, "prefetch": 1, "unroll": 1}
    assert "records 3, runs 1" in memory("stats", "--url", url).stdout


def test_an_older_tools_file_is_imported_with_our_names(tmp_path: Path) -> None:
    sample, url = ROOT / "tests" / "data" / "memory" / "global_strategy_memory.json", f"sqlite:///{tmp_path}/m.db"
    done = memory("import", str(sample), "--url", url, "--json")
    assert as_json(done)["imported"] == 3
    assert len(as_json(done)["left_out"]) == 4
    assert done.stderr.count("left out: ") == 4
    (best, *_) = as_json(memory("list", "--url", url, "--json", "--outcome", "positive"))["records"]
    assert best["strategy"]["methods"] == ["memory.tiling_smem", "memory.vectorized_access"]
    again = as_json(memory("import", str(sample), "--url", url, "--json", "--arch", "sm_80"))
    assert (again["imported"], again["known"]) == (1, 3)


def test_an_older_memory_is_carried_over_by_any_command_and_said(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript((ROOT / "tests" / "data" / "memory" / "v1.sqlite.sql").read_text())
    done = memory("list", "--url", f"sqlite:///{file}", "--json")
    assert len(as_json(done)["records"]) == 3
    assert "was brought from revision 0001 to 0003; before: " in done.stderr
