"""Tensors that say they are on a GPU: what torch is told in the process that describes and compiles Triton kernels.

They have shapes and, on `meta`, no data. The process never opens CUDA's context, whether there is a GPU or not.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Sequence

import torch
from torch.overrides import TorchFunctionMode

from backends.torch_arithmetic import Call, mode
from backends.triton_standin import Device

# As good an address as any that torch's allocator gives: aligned to more than any specialisation asks for.
_BASE_ADDRESS = 1 << 40
_GETTERS = ((torch.Tensor.device, torch.device("cuda", 0)), (torch.Tensor.is_cuda, True), (torch.Tensor.is_meta, False))


@contextlib.contextmanager
def elsewhere(place: str) -> Iterator[None]:
    """Inside, every tensor is at `place` (`meta` or `cpu`), whatever its maker says, and says that it is on a GPU."""
    device = torch.device(place)

    def called(func: Call, args: Sequence[torch.Tensor], named: dict[str, object]) -> object:
        if func.__name__ == "__get__":
            getter = getattr(func, "__self__", None)
            for known, value in _GETTERS:
                if known is getter:
                    return value
        if func is torch.Tensor.data_ptr and place == "meta":
            return _BASE_ADDRESS + args[0].storage_offset() * args[0].element_size()
        if func is torch.Tensor.get_device:
            return 0
        if func is torch.Tensor.cuda:
            return args[0].to(device)
        if func in (torch.Tensor.cpu, torch.Tensor.pin_memory):
            return args[0]
        if "device" in named:
            named["device"] = device
        if func is torch.Tensor.to:
            args = [device if isinstance(arg, (torch.device, str)) else arg for arg in args]
        return func(*args, **named)

    with device, mode(TorchFunctionMode, "__torch_function__", called):
        yield


def replace_torch_cuda(device: Device) -> None:
    """Have `torch.cuda` speak of `device` for the rest of this process."""
    properties = types.SimpleNamespace(
        name=device.name,
        major=device.major,
        minor=device.minor,
        multi_processor_count=device.processors,
        total_memory=device.memory,
        L2_cache_size=device.l2,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=device.registers,
        shared_memory_per_block=device.block_shared,
        shared_memory_per_block_optin=device.shared,
        shared_memory_per_multiprocessor=device.shared + 1024,
    )
    stream = types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    replaced = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "synchronize": lambda *_: None,
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: (device.major, device.minor),
        "get_device_name": lambda *_: device.name,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "stream": lambda *_: contextlib.nullcontext(),
        "device": lambda *_: contextlib.nullcontext(),
        "device_of": lambda *_: contextlib.nullcontext(),
        "empty_cache": lambda: None,
    }
    for name, value in replaced.items():
        setattr(torch.cuda, name, value)
    generator = torch.Generator
    made = {"__new__": lambda cls, device=None: generator.__new__(cls, device="cpu")}
    torch.Generator = type("Generator", (generator,), made)
