"""Reads a report with NVIDIA's own `ncu_report` and prints it as JSON; run as a program of its own, never imported.

    python report_child.py FOLDER_OF_NCU_REPORT REPORT

What is not as expected ends it with an exception: whoever started it then reads the report in another way.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from typing import Any

# Series over time: no page prints them as a number.
_SERIES = ("pmsampling:", "warpsampling:")
_SERIES_PART = ".TriageCompute."


def _cell(name: str, metric: Any) -> str:
    """A metric's value as a page prints it: a number, a word, `n/a`; nothing where there is a series alone."""
    value = metric.value()
    if value is None and metric.num_instances() > 0:
        values = [metric.value(i) for i in range(metric.num_instances())]
        series = name.startswith(_SERIES) or _SERIES_PART in name
        if series or not all(isinstance(one, (int, float)) for one in values):
            return ""
        value = sum(values)
    if value is None:
        return "n/a"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f"{name} is a {type(value).__name__}")
    return value if isinstance(value, str) else repr(value)


def _part(rule: Any, name: str) -> Any:
    """A dictionary within a rule's; some versions give it as text."""
    found = rule.get(name)
    return ast.literal_eval(found) if isinstance(found, str) else found


def _rules(action: Any) -> list[dict[str, object]]:
    found = []
    for rule in action.rule_results_as_dicts():
        message, estimate = _part(rule, "rule_message"), _part(rule, "speedup_estimation")
        if not message:
            continue
        found.append(
            {
                "rule": rule["rule_identifier"],
                "kind": message["type"],
                "text": message["message"],
                "speedup_kind": estimate["type"] if estimate else None,
                "speedup_percent": estimate["speedup"] if estimate else None,
            }
        )
    return found


def main(folder: str, report: str) -> None:
    """Print what the `ncu_report` in `folder` finds in `report`."""
    answer = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what the module prints is not part of it
    sys.path.insert(0, folder)
    ncu_report = importlib.import_module("ncu_report")
    context = ncu_report.load_report(report)
    launches = []
    for number in range(context.num_ranges()):
        part = context.range_by_idx(number)
        for action in map(part.action_by_idx, range(part.num_actions())):
            metrics = []
            for name in sorted(action.metric_names()):
                metric = action.metric_by_name(name)
                metrics.append([name, metric.unit() or "", _cell(name, metric)])
            name = action.name(ncu_report.IAction.NameBase_DEMANGLED)
            launches.append({"name": name, "metrics": metrics, "rules": _rules(action)})
    with answer:
        json.dump({"launches": launches}, answer, allow_nan=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
