"""The known exploits, each with its honest twin: what lies in `cases/<backend>/<name>/`.

`exploit.*` must be rejected and `honest.*`, as near to it as an honest kernel can be, must pass. A cheat too small for
one measurement to show is `compared.*` instead: against its twin it must gain nothing. The cheat's first line says what
it tries; then come, each on a comment line of its own near the top,

    expect: a pattern that the reason for its rejection must match (not for `compared.*`)
    needs: the layers of the sandbox without which nothing else stops it, with commas
    gap: why it is known not to be rejected: it is played and shown, and does not count
    task: a task of `tasks/` other than its backend's own
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BACKENDS = ("cpp", "cuda", "cutlass", "triton")
_SUFFIX = {"cpp": ".cpp", "cuda": ".cu", "cutlass": ".cu", "triton": ".py"}
_FOLDER = Path(__file__).parent
_NO_GAIN = r"^no gain|^b: clocks disagree|or shared, in"
_COMMENT = re.compile(r"^\s*(?://|#)\s?(.*)$")


@dataclass(frozen=True, slots=True)
class Case:
    """One exploit and its twin.

    Attributes:
        backend: whose kernels they are.
        name: of the folder.
        tries: what the exploit tries, in a few words.
        cheat, honest: the sources.
        compared: whether the cheat is held against its twin in a comparison.
        expect: what the reason for its rejection must match.
        needs: layers of the sandbox.
        gap: why the exploit may pass, where that is known.
        task: the task file that both are kernels of.
    """

    backend: str
    name: str
    tries: str
    cheat: Path
    honest: Path
    compared: bool
    expect: str
    needs: tuple[str, ...]
    gap: str | None
    task: Path


def find_cases(backend: str) -> list[Case]:
    """The cases of a backend, by name. Raises ValueError: one is incomplete."""
    return [read_case(backend, folder) for folder in sorted((_FOLDER / "cases" / backend).iterdir()) if folder.is_dir()]


def read_case(backend: str, folder: Path) -> Case:
    """The case in a folder. Raises ValueError: it is incomplete."""
    suffix = _SUFFIX[backend]
    cheats = [folder / f"{name}{suffix}" for name in ("exploit", "compared")]
    cheat = next((path for path in cheats if path.is_file()), None)
    honest = folder / f"honest{suffix}"
    if cheat is None or not honest.is_file():
        raise ValueError(f"{folder}: needs exploit{suffix} (or compared{suffix}) and honest{suffix}")
    comments = [m[1] for line in cheat.read_text(encoding="utf-8").splitlines() if (m := _COMMENT.match(line))]
    compared = cheat.stem == "compared"
    expect = _directive(comments, "expect")
    if not comments or compared == (expect is not None):
        raise ValueError(f"{cheat}: begins with a comment on what it tries, and has an `expect:` line unless compared")
    needs = _directive(comments, "needs")
    return Case(
        backend=backend,
        name=folder.name,
        tries=_first_sentence(comments),
        cheat=cheat,
        honest=honest,
        compared=compared,
        expect=expect or _NO_GAIN,
        needs=tuple(layer.strip() for layer in needs.split(",")) if needs else (),
        gap=_directive(comments, "gap"),
        task=_FOLDER / "tasks" / f"{_directive(comments, 'task') or backend}.yaml",
    )


def _directive(comments: Sequence[str], name: str) -> str | None:
    return next((text.partition(":")[2].strip() for text in comments if text.startswith(f"{name}: ")), None)


def _first_sentence(comments: Sequence[str]) -> str:
    """Up to the first full stop, over line ends."""
    lines = []
    for text in comments:
        lines.append(text)
        if text.rstrip().endswith("."):
            break
    return " ".join(lines).partition(". ")[0].rstrip(".")
