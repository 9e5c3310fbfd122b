"""What the backends that run a compiler share: the kernel's private copy, and a failed run told to its author."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backends import build_cache, diagnostics
from backends.host_compiler import TOO_LARGE, too_large
from backends.process import Completed
from backends.types import BuildSpec, Built, Rejected, SourceError
from backends.walls import Walls

# `/usr/x` behind `-isystem`, `-I/usr/x`, `--sysroot=/usr/x`, `-Xcompiler=-I/usr/x`; a macro's value names nothing.
_NAMES_FILE = re.compile(r"(?:@|(?:-(?!D)[\w-]*?=?)*)(/.+)")
_DENIED = "Permission denied"
_MAY_READ = "a kernel reads its own folder, the toolchain and task.build.include"


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


def lies_beside(source: Path, spec: BuildSpec) -> bool:
    """Whether a kernel may include what lies beside it: not in a hidden folder that the task does not name."""
    folder = source.parent.resolve()
    if folder in {include.resolve() for include in spec.include}:
        return True
    return not any(folder.is_relative_to(hidden.resolve()) for hidden in spec.hidden)


def walls(source: Path, spec: BuildSpec, work: Path, headers: Sequence[Path] = ()) -> Walls:
    """What of the user's a kernel may read while it is compiled in `work`, the only place to write to.

    That is the include folders, the kernel's own, a library's `headers`, and what the task's flags name, programs too.
    """
    parts = (part for flag in spec.flags for part in flag.split(","))
    named = (Path(match[1]) for match in map(_NAMES_FILE.match, parts) if match)
    beside = (source.parent.absolute(),) if lies_beside(source, spec) else ()
    readable = (*spec.include, *beside, *headers)
    return Walls(writable=(work,), readable=readable, tools=tuple(named), hidden=spec.hidden)


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
    if reason.endswith(_DENIED):
        reason += f" ({_MAY_READ})"
    return Failed(reason, diagnostics.errors_only(log, own))


def included(names: Sequence[str], work: Path, inside: Walls) -> list[bytes] | Failed:
    """What is in the headers that a kernel's preprocessed text names, or why they are not read.

    A kernel can write any name there (`# 1 "/dev/zero" 1`), and it is read outside the walls.
    """
    for name in names:
        if not inside.admits(work / name):
            return Failed(f"names a header that it cannot have included: {diagnostics.bounded(name)}", "")
    return [(work / name).read_bytes() for name in names]


def from_cache(cache: Path, key: str, artifact: str) -> Built | None:
    """The finished build under `key`, or None."""
    entry = build_cache.load(cache, key, artifact)
    if entry is None:
        return None
    return Built(entry.artifact, key, entry.command, entry.log, 0.0, cached=True, resources=entry.resources)
