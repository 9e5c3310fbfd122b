"""A method's class is what people read in the morning: missing evidence must never look like a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from agent.events import AblationBuilt
from agent.machine_code import MachineCode
from agent.stages.ablation import Ablation
from agent.stages.attribution import attribute
from agent.stages.switches import ALL
from backends.registry import get_backend
from backends.types import Built, Listing, Rejected
from profiling.findings import Axis, Comparison, MethodPresence

Presence = Literal["verified", "absent", "unavailable", "none"]


def compared(speedup: float, width: float = 0.01, base_ms: float = 1.0) -> Comparison:
    """a runs at `speedup * base_ms`, b at `base_ms`."""
    low, high = speedup - width, speedup + width
    return Comparison(
        speedup=speedup,
        low=low,
        high=high,
        a_ms=speedup * base_ms,
        b_ms=base_ms,
        delta_ms=(speedup - 1) * base_ms,
        delta_low_ms=(low - 1) * base_ms,
        delta_high_ms=(high - 1) * base_ms,
        log_ratios=((0.0,),),
    )


def without(
    method: str,
    comparison: Comparison | Rejected | None,
    code_differs: bool | None = True,
    rejected: Rejected | None = None,
) -> Ablation:
    built = AblationBuilt(
        key=f"iter1/no_{method}",
        iteration=1,
        method=method,
        form="switch",
        source=None,
        code_differs=code_differs,
        rejected=rejected,
    )
    return Ablation(built, comparison)


def on_compute(*methods: str) -> dict[str, Axis]:
    return dict.fromkeys(methods, "compute")


def present(method: str, verdict: Presence = "verified") -> MethodPresence:
    return MethodPresence(method, verdict, "vfmadd* 0 -> 12")


def classes(
    methods: dict[str, tuple[Presence, Ablation | None]], gain: Comparison, all_off: Ablation | None = None
) -> dict[str, str]:
    ablations = {m: a for m, (_, a) in methods.items() if a is not None}
    ablations[ALL] = without(ALL, compared(1.0)) if all_off is None else all_off
    presence = [present(m, v) for m, (v, _) in methods.items()]
    rows, _ = attribute(on_compute(*methods), presence, ablations, gain, 0.02)
    return {row.method: row.method_class for row in rows}


def test_present_and_beyond_noise_is_effective_and_present_and_not_is_ineffective() -> None:
    found = classes(
        {
            "compute.a": ("verified", without("compute.a", compared(1.5))),
            "compute.b": ("verified", without("compute.b", compared(1.005))),
        },
        compared(1.5),
    )
    assert found == {"compute.a": "effective", "compute.b": "ineffective"}


def test_a_gain_whose_interval_reaches_into_the_noise_is_not_effective() -> None:
    found = classes({"compute.a": ("verified", without("compute.a", compared(1.05, width=0.04)))}, compared(1.0))
    assert found == {"compute.a": "ineffective"}


def test_absent_from_the_machine_code_is_a_failed_implementation_whatever_the_time_says() -> None:
    assert classes({"compute.a": ("absent", without("compute.a", compared(1.5)))}, compared(1.5)) == {
        "compute.a": "implementation_failed"
    }


def test_a_switch_that_changes_no_machine_code_is_a_failed_implementation() -> None:
    found = classes({"compute.a": ("verified", without("compute.a", None, code_differs=False))}, compared(1.5))
    assert found == {"compute.a": "implementation_failed"}


def test_an_ablation_that_does_not_build_or_is_wrong_says_nothing() -> None:
    broken = without("compute.a", None, rejected=Rejected("build", "expected ';'"))
    wrong = without("compute.b", Rejected("verify", "a: C[3]: 1 is not 2"))
    found = classes(
        {"compute.a": ("verified", broken), "compute.b": ("verified", wrong), "compute.c": ("verified", None)},
        compared(1.5),
    )
    assert found == {"compute.a": "unverified", "compute.b": "unverified", "compute.c": "unverified"}


def test_without_a_disassembler_nothing_is_called_effective() -> None:
    assert classes({"compute.a": ("unavailable", without("compute.a", compared(1.5)))}, compared(1.5)) == {
        "compute.a": "unverified"
    }


def test_a_method_that_leaves_no_opcode_is_classified_by_its_effect_when_the_code_differs() -> None:
    assert classes({"compute.a": ("none", without("compute.a", compared(1.5)))}, compared(1.5)) == {
        "compute.a": "effective"
    }
    unseen = without("compute.a", compared(1.5), code_differs=None)
    assert classes({"compute.a": ("none", unseen)}, compared(1.5)) == {"compute.a": "unverified"}


def test_sabotaged_else_branches_void_every_attribution_by_switch() -> None:
    sabotage = without(ALL, compared(1.4))
    rows, audit = attribute(
        on_compute("compute.a"),
        [present("compute.a")],
        {"compute.a": without("compute.a", compared(1.5)), ALL: sabotage},
        compared(1.1),
        0.02,
    )
    assert rows[0].method_class == "unverified"
    assert rows[0].attribution_ms is None
    assert audit is not None
    assert audit.startswith("failed")


def test_without_an_audit_attributions_by_switch_prove_nothing() -> None:
    effect = {"compute.a": without("compute.a", compared(1.5))}
    broken = {**effect, ALL: without(ALL, None, rejected=Rejected("build", "expected ';'"))}
    wrong = {**effect, ALL: without(ALL, Rejected("verify", "a: C[0]: 1 is not 2"))}
    for ablations in (effect, broken, wrong):
        rows, audit = attribute(on_compute("compute.a"), [present("compute.a")], ablations, compared(1.5), 0.02)
        assert rows[0].method_class == "unverified"
        assert audit is not None
        assert audit.startswith("not possible")


def test_a_rewrite_that_changes_nothing_is_the_models_failure_and_not_the_methods() -> None:
    same = without("compute.a", None, code_differs=False)
    rewritten = Ablation(same.built.model_copy(update={"form": "rewrite"}), None)
    assert classes({"compute.a": ("verified", rewritten)}, compared(1.5)) == {"compute.a": "unverified"}


def test_an_honest_all_off_kernel_passes_the_audit() -> None:
    honest = without(ALL, compared(1.02))
    found = classes({"compute.a": ("verified", without("compute.a", compared(1.5)))}, compared(1.5), honest)
    assert found == {"compute.a": "effective"}


def test_methods_that_only_work_together_are_interaction_and_never_ineffective() -> None:
    found = classes(
        {
            "compute.a": ("verified", without("compute.a", compared(1.0))),
            "compute.b": ("verified", without("compute.b", compared(1.0))),
        },
        compared(3.0),
    )
    assert found == {"compute.a": "interaction", "compute.b": "interaction"}


def test_one_method_alone_cannot_interact() -> None:
    assert classes({"compute.a": ("verified", without("compute.a", compared(1.0)))}, compared(3.0)) == {
        "compute.a": "ineffective"
    }


def test_a_champion_that_gained_nothing_has_no_interaction_to_explain() -> None:
    assert classes({"compute.a": ("verified", without("compute.a", compared(1.0)))}, compared(0.9)) == {
        "compute.a": "ineffective"
    }


class Listed(MachineCode):
    """Device code that could be listed."""

    def device(self, built: Built) -> Listing | None:
        return Listing("any", (), "")


@pytest.mark.parametrize(("backend", "differs"), [("cuda", None), ("cpp", False)])
def test_a_launch_that_nothing_could_list_is_no_proof_that_a_switch_does_nothing(
    backend: str, differs: bool | None, tmp_path: Path
) -> None:
    """Without objdump a method that changes only the launch would be called a failed implementation."""
    artifact = tmp_path / "unlistable.so"
    artifact.write_bytes(b"no library")
    built = Built(artifact, "key", (), "", 0.0, cached=False)
    assert Listed(get_backend(backend)).differs(built, built) is differs
