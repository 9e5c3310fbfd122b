"""Where things lie: the cache, run folders and what is inside them."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from agent.errors import ConfigError, UnfitEnvironment

CONFIGS = Path(__file__).resolve().parent.parent / "configs"


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/roofclimb`, else `~/.cache/roofclimb`, else (cron without a HOME) one of our own in `/tmp`.

    Raises:
        UnfitEnvironment: none of them can be written.
    """
    home, cache = os.environ.get("HOME"), os.environ.get("XDG_CACHE_HOME")
    wanted = Path(cache) if cache else Path(home) / ".cache" if home else None
    own = Path(tempfile.gettempdir()) / f"roofclimb-cache-{os.geteuid()}"
    for folder in (wanted / "roofclimb" if wanted is not None and wanted.is_absolute() else None, own):
        if folder is not None and _usable(folder):
            return folder
    raise UnfitEnvironment(f"{own}: cannot be used as a cache; set XDG_CACHE_HOME to a folder that can be written")


def _usable(folder: Path) -> bool:
    """Made if need be, writable, and ours: builds that another user could change must not be loaded."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder.stat().st_uid == os.geteuid() and os.access(folder, os.W_OK)
    except OSError:
        return False


def find_config(name: str) -> Path:
    """A config by path, or a shipped one by name (`quickstart`).

    Raises:
        ConfigError: neither is there.
    """
    path = Path(name)
    if path.is_file():
        return path
    for shipped in (CONFIGS / path.name, CONFIGS / f"{path.name}.yaml"):
        if shipped.is_file() and path.parent in (Path("."), Path("configs")):
            return shipped
    names = ", ".join(sorted(p.stem for p in CONFIGS.glob("*.yaml") if p.stem != "prices"))
    raise ConfigError(f"{name}: no such file; give a task file, or one of the shipped configs ({names})")


def new_run_folder(output: Path) -> Path:
    """Make `output/run_YYYYMMDD_HHMMSS` and point `output/latest` at it.

    Raises:
        UnfitEnvironment: it cannot be made.
    """
    return _new_folder(output, "run", "latest")


def new_night_folder(output: Path) -> Path:
    """Make `output/night_YYYYMMDD_HHMMSS` and point `output/latest-night` at it: a page to be read under one address.

    Raises:
        UnfitEnvironment: it cannot be made.
    """
    return _new_folder(output, "night", "latest-night")


def _new_folder(output: Path, kind: str, link: str) -> Path:
    try:
        output.mkdir(parents=True, exist_ok=True)
        folder = _unused(output, kind)
        _point(output / link, folder.name)
    except OSError as error:
        raise UnfitEnvironment(
            f"{output}: cannot make a {kind} folder ({error.strerror}); choose another `output`"
        ) from None
    return folder


def make_latest(folder: Path) -> None:
    """Point `latest` at a run that is worked on now, where a link can be made."""
    with suppress(OSError):
        _point(folder.parent / "latest", folder.name)


def remove_run_folder(folder: Path) -> None:
    """Take back a folder whose run never began; `latest` goes back to the newest run before it."""
    shutil.rmtree(folder, ignore_errors=True)
    output = folder.parent
    others = sorted(p.name for p in output.glob("run_*") if p.is_dir())
    with suppress(OSError):
        if others:
            _point(output / "latest", others[-1])
        else:
            (output / "latest").unlink(missing_ok=True)
            output.rmdir()


def _point(link: Path, name: str) -> None:
    temporary = link.with_name(f".{link.name}-{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(name)
    temporary.replace(link)


def _unused(output: Path, kind: str) -> Path:
    stamp = datetime.now(timezone.utc).strftime(f"{kind}_%Y%m%d_%H%M%S")
    number = 1
    while True:
        folder = output / (stamp if number == 1 else f"{stamp}_{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def iteration_folder(run: Path, iteration: int) -> Path:
    """`iterv<i>`, made."""
    folder = run / f"iterv{iteration}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
