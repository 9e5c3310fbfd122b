"""What a task asks of every kernel that a model wrote: its signature, and the libraries that it may need."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path

from backends.signature import same_signature
from backends.types import Backend, BuildSpec, Built, Rejected, Signature, SourceError


@dataclass(frozen=True, slots=True)
class Contract:
    """Holds candidates to a task.

    Attributes:
        backend: how they are built.
        signature: the baseline's.
        libraries: those that the task allows.
    """

    backend: Backend
    signature: Signature
    libraries: Sequence[str]

    def build(self, source: Path, spec: BuildSpec, cache: Path) -> Built | Rejected:
        """Build a candidate and hold it to the contract.

        Raises:
            ToolchainError: the compiler is missing or broken.
        """
        with ThreadPoolExecutor(1) as beside:  # both start a preprocessor, and neither needs the other
            signature = beside.submit(copy_context().run, self._unlike, source, spec)  # who ends the one ends both
            built = self.backend.build(source, spec, cache)
            problem = signature.result()
        return built if isinstance(built, Rejected) else problem or self._loadable(built)

    def check(self, source: Path, spec: BuildSpec, built: Built) -> Built | Rejected:
        """The same for a candidate that is built already."""
        return self._unlike(source, spec) or self._loadable(built)

    def _unlike(self, source: Path, spec: BuildSpec) -> Rejected | None:
        """Why a candidate cannot be called as the baseline is, or None."""
        try:
            difference = same_signature(self.signature, self.backend.signature(source, spec))
        except SourceError as error:
            return Rejected("signature", str(error))
        return None if difference is None else Rejected("signature", difference)

    def _loadable(self, built: Built) -> Built | Rejected:
        """A candidate needs no library that the task does not allow."""
        refusal = self.backend.refusal(built, self.libraries)
        return built if refusal is None else Rejected("load", refusal)
