"""What NVML does not tell of a GPU, asked of the CUDA driver itself. Runs in a child process only.

`cuInit` opens every visible GPU and keeps it open for the life of the process, and a process that called it can fork no
child that uses CUDA. So the controller never calls it: it starts this, which prints one JSON object and ends.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping

# CUdevice_attribute of cuda.h; the numbers are part of the driver's ABI.
_ATTRIBUTES: Mapping[str, int] = {
    "sm_count": 16,
    "l2_bytes": 38,
    "threads_per_sm": 39,
    "shared_per_sm_bytes": 81,
    "registers_per_sm": 82,
    "shared_per_block_bytes": 97,  # the largest a kernel may opt in to, not the 48 KiB it gets unasked
}
_NO_LIBRARY = (
    "libcuda.so.1 is not found: install the driver's CUDA library; in a container, start it with "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
)
_REMEDIES: Mapping[int, str] = {
    3: "run it outside what has shut CUDA down",
    46: "wait for the process that holds it exclusively, or set `nvidia-smi -c DEFAULT`",
    100: "no GPU is open to this process; check the rights of /dev/nvidia*",
    802: "start the service nvidia-fabricmanager, and wait until it is up",
    803: "the CUDA library and the kernel module differ in version: reboot, or reload the module",
    804: "the CUDA compatibility library does not fit this GPU: take its folder out of LD_LIBRARY_PATH",
}


def main() -> None:
    """Print `{"fault": …}`, or `{"devices": [{"sm_count": …}, …]}`."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        print(json.dumps({"fault": _NO_LIBRARY}))
        return
    code = cuda.cuInit(0)
    print(json.dumps({"fault": _fault(cuda, code)} if code else _read(cuda)))


def _fault(cuda: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    named = cuda.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value
    name = text.value.decode(errors="replace") if named and text.value else f"error {code}"
    return f"CUDA does not start ({name}): {_REMEDIES.get(code, 'look for NVRM or Xid lines in `dmesg`')}"


def _read(cuda: ctypes.CDLL) -> dict[str, object]:
    return {"devices": [_device(cuda, ordinal) for ordinal in range(_number(cuda.cuDeviceGetCount) or 0)]}


def _device(cuda: ctypes.CDLL, ordinal: int) -> dict[str, int | None]:
    return {name: _number(cuda.cuDeviceGetAttribute, number, ordinal) for name, number in _ATTRIBUTES.items()}


def _number(query: Callable[..., int], *arguments: int) -> int | None:
    """What `query` writes to its first argument; None where it fails or writes nothing that can be."""
    value = ctypes.c_int(0)
    return value.value if query(ctypes.byref(value), *arguments) == 0 and value.value > 0 else None
