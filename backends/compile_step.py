"""What the backends that run a compiler share: the kernel's private copy, and a failed run told to its author."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backends import build_cache, diagnostics
from backends.host_compiler import TOO_LARGE, too_large
from backends.process import Completed
from backends.types import Built, Rejected, SourceError


@dataclass(frozen=True, slots=True)
class Failed:
    """A compiler run that gave nothing: one line, and the trimmed log behind it."""

    reason: str
    evidence: str

    def rejected(self) -> Rejected:
        """The kernel's verdict."""
        return Rejected("build", self.reason, self.evidence)

    def error(self, source: Path) -> SourceError:
        """The same for a source that was to be read only."""
        return SourceError(self.reason if source.name in self.reason else f"{source.name}: {self.reason}")


def copied(source: Path, work: Path, name: str) -> Path:
    """The kernel as `work/name`: what is hashed is what is compiled, and no path reaches its text.

    Raises:
        SourceError: `source` cannot be read.
        OSError: `work` cannot be written.
    """
    try:
        text = source.read_bytes()
    except OSError as error:
        raise SourceError(f"{source}: {error.strerror or error}; give a readable kernel file") from error
    copy = work / name
    copy.write_bytes(text)
    return copy


def without_folders(log: str, work: Path, source: Path) -> str:
    """`log` without the folders of the build and of the kernel, which mean nothing to a reader."""
    return diagnostics.shorten_paths(log, {f"{work}/": "", f"{source.parent.absolute()}/": ""})


def failure(done: Completed, log: str, own: str, limit: str) -> Failed | None:
    """Why a compiler run gave nothing, or None where it did.

    Args:
        done: the run.
        log: what it said, for people.
        own: the kernel's name in `log`.
        limit: what to say where it ran out of time.
    """
    if not done.timed_out and done.returncode == 0:
        return None
    if done.timed_out:
        return Failed(limit, diagnostics.bounded(log))
    reason = TOO_LARGE if too_large(done) else diagnostics.first_error(log)
    return Failed(reason, diagnostics.errors_only(log, own))


def from_cache(cache: Path, key: str, artifact: str) -> Built | None:
    """The finished build under `key`, or None."""
    entry = build_cache.load(cache, key, artifact)
    if entry is None:
        return None
    return Built(entry.artifact, key, entry.command, entry.log, 0.0, cached=True, resources=entry.resources)
