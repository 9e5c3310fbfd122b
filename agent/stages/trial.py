"""One sitting: best kernel, champion and the champion's ablations take turns, so that what drifts meets all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.artefacts import write_json
from agent.run import Kernel, Match, Run
from agent.stages.ablation import Ablation, Variant, ablation_folder, ablation_name
from agent.stages.switches import ALL
from backends.types import Rejected
from profiling.findings import Comparison

_CHAMPION = "champion"


@dataclass(frozen=True, slots=True)
class Trial:
    """What the sitting found.

    Attributes:
        champion: the best kernel (a) against the champion (b).
        ablations: by method; `all` is the switch audit.
    """

    champion: Comparison | Rejected
    ablations: Mapping[str, Ablation]


def hold_trial(run: Run, iteration: int, base: Kernel, champion: Kernel, variants: Mapping[str, Variant]) -> Trial:
    """Compare the champion with the best kernel, and every ablation with the champion (without any method: with base).

    A switch that changes no machine code, and what did not build, is not compared.
    """
    matches = {_CHAMPION: Match((base.label, base.built), (champion.label, champion.built))}
    for method, variant in variants.items():
        whole, name = (base, "all methods off") if method == ALL else (champion, f"without {method}")
        if variant.comparable is not None:
            matches[ablation_name(method)] = Match((name, variant.comparable), (whole.label, whole.built))
    outcomes = run.compare_all(iteration, matches)
    for method in variants:
        if ablation_name(method) in outcomes:
            write_json(ablation_folder(run, iteration, method) / "bench.json", outcomes[ablation_name(method)])
    ablations = {m: Ablation(v.event, outcomes.get(ablation_name(m))) for m, v in variants.items()}
    return Trial(outcomes[_CHAMPION], ablations)
