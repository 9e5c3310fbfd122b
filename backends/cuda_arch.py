"""For which GPU architecture a kernel is compiled, and whether with the features of that architecture alone."""

from __future__ import annotations

import re

from backends.types import SourceError

_ARCH = re.compile(r"sm_(\d{2,3})([af]?)")
_SPELLINGS = re.compile(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)([af]?)")
# Architectures from here on have features of their own, behind the suffix `a`.
_FIRST_SPECIFIC = 90
# What only `sm_90a`, `sm_100a` and the like know: PTX instructions, and the macros by which libraries ask for them.
_SPECIFIC = re.compile(
    r"wgmma|setmaxnreg|tcgen05|tensormap\.replace|tensormap\.cp_fenceproxy|"
    r"__CUDA_ARCH_(?:FEAT_SM|SPECIFIC__|FAMILY_SPECIFIC__)|kind::mxf|\b(?:cutlass|cute)/"
)
# ptxas on an instruction, modifier or feature that the plain architecture lacks.
_LACKING = re.compile(r"^ptxas .*error\s*: .*(?:\.target\b|for architecture)", re.MULTILINE)
# Where no architecture is named: the oldest that has what the source shows, so that anything at all can be looked at.
_OLDEST = (
    ("sm_100", re.compile(r"tcgen05|\bSm1\d\d\b|\bSM1\d\d_|clusterlaunchcontrol")),
    (
        "sm_90",
        re.compile(
            r"wgmma|setmaxnreg|tensormap|mbarrier\.try_wait|cp\.async\.bulk|__cluster_dims__|this_cluster|\.cluster|"
            r"\bSm90\b|\bSM90_"
        ),
    ),
)
_DEFAULT = "sm_80"


def choose_target(arch: str, user_source: str) -> str:
    """The real architecture to compile for, such as `sm_90a`.

    The suffix `a` is added where the source names something that only it has, and for all of CUTLASS: its collectives
    compile to a trap without. That binds the binary to this one compute capability, which is the device's. A suffix
    that is given stays.

    Args:
        arch: the device's architecture (`sm_90`, `90` and `9.0` are one); empty where there is none: then the oldest
            of sm_80, sm_90 and sm_100 that the source's own words need.
        user_source: the kernel and its own headers, as written.

    Raises:
        SourceError: `arch` is not of that form.
    """
    if not arch:
        arch = next((name for name, words in _OLDEST if words.search(user_source)), _DEFAULT)
    match = _SPELLINGS.fullmatch(arch)
    if match is None:
        raise SourceError(f"architecture `{arch}` is unknown; write it as `sm_90`")
    number, suffix = match[1] + match[2], match[3]
    if not suffix and int(number) >= _FIRST_SPECIFIC and _SPECIFIC.search(user_source):
        suffix = "a"
    return f"sm_{number}{suffix}"


def specific_target(target: str, log: str) -> str | None:
    """The target with the suffix `a`, where the plain one failed for lack of a feature and there is such a one."""
    match = _ARCH.fullmatch(target)
    if match is None or match[2] or int(match[1]) < _FIRST_SPECIFIC or not _LACKING.search(log):
        return None
    return f"{target}a"


def plain_target(target: str) -> str:
    """The target without its suffix."""
    return target.rstrip("af")


def gencode(target: str) -> str:
    """nvcc's flag for machine code of `target` alone."""
    return f"-gencode=arch={target.replace('sm_', 'compute_')},code={target}"
