"""CUTLASS and CuTe kernels: CUDA kernels that include their headers."""

from __future__ import annotations

from collections.abc import Mapping

from backends.cuda import CudaBackend
from backends.cutlass_headers import CutlassHeaders, find_cutlass


class CutlassBackend(CudaBackend):
    """Kernels built by nvcc with CUTLASS's headers."""

    name: str = "cutlass"
    compile_line: str = f"{CudaBackend.compile_line} -isystem cutlass/include -isystem cutlass/tools/util/include"

    def toolchain(self) -> Mapping[str, str]:
        """Tool names to versions: those of `cuda`, and CUTLASS's.

        Raises:
            ToolchainError: there is no nvcc that runs, or there are no headers.
        """
        return {**super().toolchain(), "cutlass": find_cutlass().version}

    def _cutlass(self, text: str) -> CutlassHeaders | None:
        return find_cutlass()
