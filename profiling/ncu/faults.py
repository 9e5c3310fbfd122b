"""What goes wrong with Nsight Compute, each by name with the remedy. A fault degrades a profile, never a kernel."""

from __future__ import annotations

import re
from typing import Literal

FaultKind = Literal[
    "missing", "permission", "driver-resource", "lock-file", "home", "library", "driver", "no-kernels", "application",
    "timeout", "metrics", "output",
]  # fmt: skip

PERMISSION_REMEDIES = (
    "run as root or give ncu the CAP_SYS_ADMIN capability",
    "or load the driver with NVreg_RestrictProfilingToAdminUsers=0 "
    "(`options nvidia NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d, then reboot)",
    "or start the container with --cap-add=SYS_ADMIN",
)


class NcuFault(Exception):
    """Nsight Compute gave no profile.

    Attributes:
        kind: which fault.
        what: one line saying what happened.
        remedy: what to do about it.
        available: with `no-kernels`, the kernels that ncu saw but did not profile.
    """

    def __init__(self, kind: FaultKind, what: str, remedy: str, available: tuple[str, ...] = ()) -> None:
        super().__init__(f"{what}; {remedy}")
        self.kind: FaultKind = kind
        self.what = what
        self.remedy = remedy
        self.available = available


# In this order: the first that is found names the cause, those after it are often its consequences.
_KNOWN: tuple[tuple[FaultKind, str, str, str], ...] = (
    (
        "permission",
        r"ERR_NVGPUCTRPERM|does not have permission to (?:access|profile)|[Ii]nsufficient (?:privileges|permissions?)",
        "ncu may not read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        "; ".join(PERMISSION_REMEDIES),
    ),
    (
        "driver-resource",
        r"driver resource was unavailable|HARDWARE_BUSY|[Aa]lready under profiling",
        "another profiler holds the GPU's performance counters (driver resource unavailable)",
        "stop it, or pause DCGM while profiling with `dcgmi profile --pause`",
    ),
    (
        "lock-file",
        r"nsight-compute-lock|InterprocessLockFailed|lock file",
        "ncu cannot take its lock file nsight-compute-lock, which another user left behind",
        "remove it as its owner, or set TMPDIR to a folder of your own",
    ),
    (
        "home",
        r"config\.ncu-cfg|Failed to parse options: filesystem error",
        "ncu cannot read its settings in the home folder",
        "set HOME to a folder that can be read and written",
    ),
    (
        "library",
        r"LibraryNotLoaded|libcuda\.so[.\d]*: cannot open|Failed to load (?:the )?(?:driver|librar)",
        "ncu could not load the CUDA driver's library",
        "install the NVIDIA driver, or start the container with GPU access (`--gpus`, NVIDIA_DRIVER_CAPABILITIES=all)",
    ),
    (
        "driver",
        r"[Dd]river is not compatible|Unsupported (?:GPU|device|driver)|not supported (?:on|by) the (?:GPU|device)",
        "this ncu does not fit the driver or the GPU",
        "install the Nsight Compute of the CUDA version that `nvidia-smi` shows, or a newer one",
    ),
    (
        "driver",
        r"Unknown Error on device",
        "ncu failed with an unknown error of the device",
        "check that ncu profiles any program here; another profiler, a hung GPU or an old ncu are the usual causes",
    ),
)  # fmt: skip
_NO_KERNELS = re.compile(r"No kernels were profiled|Profiled no kernels", re.IGNORECASE)
_APPLICATION = re.compile(
    r"application returned an error code \((?P<code>-?\d+)\)|"
    r"(?P<early>terminated before (?:the )?first instrumented API call)|(?P<crash>application (?:crashed|terminated))"
)
_AVAILABLE = re.compile(r"^\s*\d+\.\s+(?P<name>\S.*?)\s*$")
_REJECTED = re.compile(r"Failed to find (?P<kind>metric|section|set)s?:? +(?P<names>.+)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z]\w*(?:\.\w+)*")
_ERROR_LINE = re.compile(r"==ERROR== *(?P<text>.+)")


def diagnose(output: str) -> NcuFault | None:
    """The fault that ncu's output tells of, None where it tells of none.

    Args:
        output: what ncu printed, the profiled program's own lines among it. Only ncu's own lines are believed, but for
            the list of kernels.
    """
    own = "\n".join(line for line in output.splitlines() if "==ERROR==" in line or "==WARNING==" in line)
    loader = "\n".join(line for line in output.splitlines() if "Failed to parse options" in line or "libcuda" in line)
    for kind, pattern, what, remedy in _KNOWN:
        if re.search(pattern, f"{own}\n{loader}"):
            return NcuFault(kind, what, remedy)
    if rejected := rejected_names(output):
        return NcuFault(
            "metrics", f"this ncu does not know {', '.join(rejected)}", "ask without it, or use a newer Nsight Compute"
        )
    application = _APPLICATION.search(own)
    if application is not None:
        ended = f"ended with code {application['code']}" if application["code"] else "ended before it used the GPU"
        return NcuFault(
            "application", f"the profiled program {ended} under ncu", "run it without ncu and see what it prints"
        )
    if _NO_KERNELS.search(own):
        return no_kernels(output)
    error = _ERROR_LINE.search(own)
    return NcuFault("output", f"ncu failed: {error['text'].strip()}", "see its output") if error else None


def no_kernels(output: str) -> NcuFault:
    """No kernels were profiled, with those that ncu says were there to be profiled."""
    available = available_kernels(output)
    if available:
        remedy = f"available: {', '.join(available)}; check the filter and the profiled range"
    else:
        remedy = "check that the call launches a kernel at all and that no launch fails"
    return NcuFault("no-kernels", "no kernels were profiled", remedy, available)


def available_kernels(output: str) -> tuple[str, ...]:
    """The numbered C++ signatures under `Available Kernels:`."""
    _, _, after = output.partition("Available Kernels:")
    names: list[str] = []
    for line in after.splitlines():
        match = _AVAILABLE.match(line)
        if match:
            names.append(match["name"])
        elif line.startswith("=="):
            break
    return tuple(names)


def rejected_names(output: str) -> tuple[str, ...]:
    """Metrics and sections that this version of ncu does not know, out of the patterns that it prints them in."""
    names: list[str] = []
    for match in _REJECTED.finditer(output):
        words = _NAME.findall(match["names"].replace("\\", "").replace("regex:", ""))
        names += [word for word in words if "_" in word or match["kind"].lower() != "metric"]
    return tuple(dict.fromkeys(names))
