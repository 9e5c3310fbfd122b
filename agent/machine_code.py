"""The machine code of builds, each disassembled once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock

from backends.types import Backend, Built, Listing
from profiling.machine_code import same_code


class MachineCode:
    """Disassembles with a backend and keeps what came out. Safe in threads: who comes second waits for the first."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._device: dict[str, Future[Listing | None]] = {}
        self._host: dict[str, Future[Listing | None]] = {}
        self._compared: dict[tuple[str, str], bool | None] = {}
        self._lock = Lock()

    def device(self, built: Built) -> Listing | None:
        """The functions that do the work; None without a disassembler."""
        return self._once(self._device, built, self._backend.disassemble)

    def differs(self, one: Built, other: Built) -> bool | None:
        """Whether two builds differ, on the device or in how the host launches it; None where that is unknown."""
        pair = one.key, other.key
        if pair not in self._compared:
            self._compared[pair] = self._compare(one, other)
        return self._compared[pair]

    def _compare(self, one: Built, other: Built) -> bool | None:
        device = self.device(one), self.device(other)
        if device[0] is None or device[1] is None:
            return None
        if not same_code(device[0], device[1]):
            return True
        host = self._host_side(one), self._host_side(other)
        if host[0] is None or host[1] is None:
            return None if self._backend.device == "gpu" else False  # how a GPU kernel is launched was not seen
        return not same_code(host[0], host[1])

    def _host_side(self, built: Built) -> Listing | None:
        return self._once(self._host, built, self._backend.host_side)

    def _once(
        self, known: dict[str, Future[Listing | None]], built: Built, make: Callable[[Built], Listing | None]
    ) -> Listing | None:
        with self._lock:
            found = known.get(built.key)
            future = found or known.setdefault(built.key, Future())
        if found is None:
            try:
                future.set_result(make(built))
            except BaseException as error:
                future.set_exception(error)
        return future.result()
