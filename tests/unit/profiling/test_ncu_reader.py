"""What a user loses when a report is read by NVIDIA's reader: a number in another unit, a missing one taken for zero, a
rule without its estimate, or a profile where the reader of another version says something else."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from profiling.ncu.command import NcuTool
from profiling.ncu.pages import Pages, parse_pages
from profiling.ncu.report_reader import pages_of, read_with_python, reader_folder
from profiling.ncu.runner import read_report
from profiling.ncu.tables import IDENTITY

DATA = Path(__file__).parents[2] / "data" / "ncu"
# Answers as `ncu_report` does, out of a file of values: what a report of 2025.3.1 holds.
READER = """\
import json

class Metric:
    def __init__(self, unit, value, instances=()):
        self._unit, self._value, self._instances = unit, value, instances
    def unit(self):
        return self._unit
    def value(self, at=None):
        return self._value if at is None else self._instances[at]
    def num_instances(self):
        return len(self._instances)

class IAction:
    NameBase_DEMANGLED = 1
    def __init__(self, found):
        self._found = found
    def name(self, base=0):
        return self._found["name"] if base == 1 else self._found["name"].split("(")[0]
    def metric_names(self):
        return tuple(reversed(list(self._found["metrics"])))
    def metric_by_name(self, name):
        return Metric(*self._found["metrics"][name])
    def rule_results_as_dicts(self):
        return self._found["rules"]

class Range:
    def __init__(self, actions):
        self._actions = actions
    def num_actions(self):
        return len(self._actions)
    def action_by_idx(self, at):
        return IAction(self._actions[at])

class Context:
    def __init__(self, ranges):
        self._ranges = ranges
    def num_ranges(self):
        return len(self._ranges)
    def range_by_idx(self, at):
        return Range(self._ranges[at])

def load_report(path):
    print("a line of the module's own")
    return Context([json.load(open(path))])
"""
NUMBERS = {"INF": 1, "OPT": 2, "WRN": 3, "local": 1, "global": 2}


def install(folder: Path, reader: str = READER) -> NcuTool:
    """A Nsight Compute with this reader, and an ncu that cannot read reports."""
    home = folder / "nsight-compute-2025.3.1" / "extras" / "python"
    home.mkdir(parents=True)
    (home / "ncu_report.py").write_text(reader)
    program = folder / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nraise SystemExit('cannot read it')\n")
    program.chmod(0o755)
    return NcuTool(program, "2025.3.1.0")


def report_of(stem: str, folder: Path) -> Path:
    """A file with the values of recorded pages, as the reader above gives them."""
    with (DATA / f"{stem}_full_raw.csv").open() as lines:
        header, units, *rows = csv.reader(lines)
    with (DATA / f"{stem}_full_details.csv").open() as lines:
        rules = [row for row in csv.DictReader(lines) if row["Rule Name"]]
    actions = []
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        metrics = {
            name: (unit, value_of(cells[name]))
            for name, unit in zip(header, units, strict=True)
            if name not in IDENTITY and cells[name]
        }
        mine = [rule for rule in rules if rule["ID"] == cells["ID"]]
        actions.append({"name": cells["Kernel Name"], "metrics": metrics, "rules": [rule_of(rule) for rule in mine]})
    path = folder / "profile.ncu-rep"
    path.write_text(json.dumps(actions))  # NaN as Python spells it
    return path


def value_of(cell: str) -> float | int | str | None:
    plain = cell.replace(",", "")
    if cell in ("n/a", "no data"):
        return None
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return cell


def rule_of(row: dict[str, str]) -> dict[str, object]:
    text = row["Rule Description"].replace("Scheduler Statistics", "@section:SchedulerStats:Scheduler Statistics@")
    guide = "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#roofline"
    text = text.replace(f"Profiling Guide ({guide})", f"@url:Profiling Guide:{guide}@")
    rule: dict[str, object] = {
        "rule_identifier": row["Rule Name"],
        "name": "a name for people",
        "section_identifier": row["Section Name"],
        "rule_message": {"title": "a title", "message": text, "type": NUMBERS[row["Rule Type"]]},
        "focus_metrics": [],
    }
    if row["Estimated Speedup Type"]:
        speedup = float(row["Estimated Speedup"]) * (1 + 1e-6)
        rule["speedup_estimation"] = {"type": NUMBERS[row["Estimated Speedup Type"]], "speedup": speedup}
    return rule


def printed(stem: str) -> Pages:
    raw, details = (parse_pages((DATA / f"{stem}_full_{page}.csv").read_bytes()) for page in ("raw", "details"))
    return Pages(raw.launches, details.rules)


@pytest.mark.parametrize("stem", ["gemm_naive", "softmax_two"])
def test_the_reader_says_what_the_pages_say(stem: str, tmp_path: Path) -> None:
    found = read_report(report_of(stem, tmp_path), ncu=install(tmp_path))
    pages = printed(stem)
    assert found.rules == pages.rules
    assert len(found.launches) == len(pages.launches)
    for one, other in zip(found.launches, pages.launches, strict=True):
        assert (one.id, one.name, one.grid, one.block) == (other.id, other.name, other.grid, other.block)
        assert one.metrics == pytest.approx(other.metrics)
        assert (one.units, one.missing, one.clamped) == (other.units, other.missing, other.clamped)


def answer(metrics: list[list[object]] | None = None, **rule: object) -> str:
    sizes = [[f"launch__{what}_dim_{axis}", "", "1"] for what in ("grid", "block") for axis in "xyz"]
    one = {"rule": "SOLBottleneck", "kind": 2, "text": "Slow.", "speedup_kind": None, "speedup_percent": None}
    return json.dumps(
        {"launches": [{"name": "k()", "metrics": [*sizes, *(metrics or [])], "rules": [{**one, **rule}]}]}
    )


def test_values_are_in_base_units_and_what_is_missing_is_missing() -> None:
    pages = pages_of(
        answer(
            [
                ["gpu__time_duration.sum", "nsecond", "16384"],
                ["gpc__cycles_elapsed.avg.per_second", "cycle/nsecond", "1.5"],
                ["dram__bytes.sum", "byte", "1e+06"],
                ["lts__hit_rate.pct", "%", "100.5"],
                ["a__not_measured.sum", "inst", "n/a"],
                ["a__not_a_number.ratio", "", "nan"],
                ["pmsampling:a__series.avg", "%", ""],
                ["device__attribute_display_name", "", "NVIDIA H200"],
            ]
        )
    )
    assert pages is not None
    (launch,) = pages.launches
    sizes = {name: value for name, value in launch.metrics.items() if not name.startswith("launch__")}
    assert sizes == {
        "gpu__time_duration.sum": pytest.approx(16.384e-6),
        "gpc__cycles_elapsed.avg.per_second": pytest.approx(1.5e9),
        "dram__bytes.sum": 1e6,
        "lts__hit_rate.pct": 100.0,
    }
    assert (launch.units["gpu__time_duration.sum"], launch.units["gpc__cycles_elapsed.avg.per_second"]) == ("s", "hz")
    assert launch.missing == ("a__not_measured.sum", "a__not_a_number.ratio")
    assert launch.clamped == ("lts__hit_rate.pct",)


def test_rules_by_name_and_by_number_are_the_same() -> None:
    by_name = pages_of(answer(kind="OPTIMIZATION", speedup_kind="LOCAL", speedup_percent=12.3456))
    assert by_name == pages_of(answer(kind=2, speedup_kind=1, speedup_percent=12.3456))
    assert by_name == pages_of(answer(kind="MSG_OPTIMIZATION", speedup_kind="local", speedup_percent=12.3456))
    assert by_name is not None
    (rule,) = by_name.rules
    assert (rule.kind, rule.speedup_kind, rule.speedup_percent) == ("OPT", "local", 12.35)


def test_links_read_as_on_a_page() -> None:
    pages = pages_of(answer(text="See @section:S:a part@, @url:the guide:https://x.y/z#a@ and @source:k.cu:7:line 7@."))
    assert pages is not None
    assert pages.rules[0].text == "See a part, the guide (https://x.y/z#a) and line 7."


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{}",
        '{"launches": []}',
        answer(kind=7),
        answer(speedup_kind=3, speedup_percent=1.0),
        answer(text="a @newlink:of:another:version@"),
        answer([["a__b.sum", "byte", 7]]),
        answer(severity=1),
        answer().replace("launch__grid_dim_x", "launch__grid_x"),
        answer().replace('"name": "k()"', '"name": ""'),
        json.dumps({"launches": [{**json.loads(answer())["launches"][0], "rules": []}]}),
    ],
)
def test_an_answer_that_is_not_as_known_is_no_answer(said: str) -> None:
    assert pages_of(answer()) is not None
    assert pages_of(said) is None


@pytest.mark.parametrize(
    "reader",
    [
        "raise ImportError('built for another Python')",
        READER.replace("def load_report(path):", "def load_report(path):\n    raise RuntimeError(path)"),
        READER.replace("rule_results_as_dicts", "rule_results"),
        READER.replace("return self._value if", "return object() if"),
        READER.replace("NameBase_DEMANGLED", "NameBase"),
        READER.replace("return Context", "raise SystemExit(0)\n    return Context"),
        READER.replace(
            "return Context", "import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)\n    return Context"
        ),
        READER.replace("return Context", "import time\n    time.sleep(60)\n    return Context"),
    ],
)
def test_a_reader_that_does_not_do_leaves_the_report_to_ncu(reader: str, tmp_path: Path) -> None:
    ncu = install(tmp_path, reader)
    ncu.path.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"page = sys.argv[sys.argv.index('--page') + 1]\n"
        f"print(open(f'{DATA}/softmax_two_full_{{page}}.csv').read())\n"
    )
    found = read_report(report_of("softmax_two", tmp_path), timeout_s=4.0, ncu=ncu)
    assert found.launches[0].process == "949 python3.12", "pages alone name the process"
    assert (found.launches, found.rules) == (printed("softmax_two").launches, printed("softmax_two").rules)


def test_charts_without_a_sum_are_no_numbers_and_others_have_one(tmp_path: Path) -> None:
    report = report_of("softmax_two", tmp_path)
    actions = json.loads(report.read_text())
    actions[0]["metrics"] |= {
        "pmsampling:a__b.avg": ("%", None, [1.0, 2.0]),
        "breakdown:a__throughput": ("", None, ["a", "b"]),
        "derived__pct_occupancy_per_register_count": ("%", None, [60.0, 40.0]),
    }
    report.write_text(json.dumps(actions))
    found = read_with_python(install(tmp_path), report, 30.0)
    assert found is not None
    launch = found.launches[0]
    assert launch.metrics["derived__pct_occupancy_per_register_count"] == 100.0
    assert not {"pmsampling:a__b.avg", "breakdown:a__throughput"} & {*launch.metrics, *launch.missing}


def test_without_a_reader_beside_ncu_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert reader_folder(NcuTool(tmp_path / "a" / "b" / "ncu", "1999.1.0")) is None
    assert read_with_python(NcuTool(tmp_path / "a" / "b" / "ncu", "1999.1.0"), tmp_path / "x.ncu-rep", 5.0) is None


def test_the_reader_never_enters_this_process(tmp_path: Path) -> None:
    assert read_with_python(install(tmp_path), report_of("gemm_naive", tmp_path), 30.0) is not None
    assert "ncu_report" not in sys.modules
