"""Files sent by what is in them: a list of names and SHA-256 digests, and the bytes behind each digest once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict

from backends.build_cache import mark_used, private_folder

MOST_BYTES = 64 << 20


class Parcel(BaseModel):
    """A file or a folder: its name, and each file in it by relative path (itself, for a file) with its digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    files: Mapping[str, str]

    @property
    def key(self) -> str:
        """Equal for equal names and contents."""
        return hashlib.sha256(json.dumps([self.name, sorted(self.files.items())]).encode()).hexdigest()


class BadParcel(Exception):
    """A parcel that is not what it says it is, or is too large to send."""


def pack(
    path: Path, admitted: Callable[[Path], bool] = lambda path: True, most_bytes: int = MOST_BYTES
) -> tuple[Parcel, dict[str, bytes]]:
    """A file or a folder as a parcel, and its contents by digest.

    Args:
        path: what to send. Links in a folder are followed where they lead to files.
        admitted: whether a file or folder in `path` goes along.
        most_bytes: of all contents together.

    Raises:
        BadParcel: it holds more than that.
        OSError: it cannot be read.
    """
    contents: dict[str, bytes] = {}
    files: dict[str, str] = {}
    total = 0
    for name, file in _files(path, admitted):
        total += file.stat().st_size
        if total > most_bytes:
            raise BadParcel(f"{path}: holds more than {most_bytes >> 20} MiB to send; name narrower folders")
        data = file.read_bytes()
        files[name] = digest(data)
        contents[files[name]] = data
    return Parcel(name=path.name, files=files), contents


def unpack(parcel: Parcel, fetch: Callable[[str], bytes], store: Path) -> Path:
    """The parcel's file or folder under `store`, written once; equal parcels share it.

    Raises:
        BadParcel: a name leads out of it, or contents are not those of their digest.
        OSError: it cannot be written.
    """
    place = store.resolve() / parcel.key
    if not place.is_dir():
        with private_folder(store) as work:
            staged = work / "parcel"
            _write(parcel, fetch, staged)
            try:
                os.rename(staged, place)
            except OSError:
                if not place.is_dir():  # else another process was first
                    raise
    mark_used(place)
    return place / parcel.name


def digest(data: bytes) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(data).hexdigest()


def _files(path: Path, admitted: Callable[[Path], bool]) -> Iterator[tuple[str, Path]]:
    if path.is_file():
        yield path.name, path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if admitted(Path(folder, name)))
        for file in (Path(folder, name) for name in sorted(names)):
            if file.is_file() and admitted(file):
                yield str(PurePosixPath(path.name, file.relative_to(path).as_posix())), file


def _write(parcel: Parcel, fetch: Callable[[str], bytes], folder: Path) -> None:
    folder.mkdir()
    _safe(parcel.name)
    for name, expected in parcel.files.items():
        if _safe(name).parts[0] != parcel.name:
            raise BadParcel(f"{name!r} does not lie in {parcel.name!r}")
        data = fetch(expected)
        if digest(data) != expected:
            raise BadParcel(f"{name}: came damaged")
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    (folder / parcel.name).mkdir(exist_ok=True) if parcel.name not in parcel.files else None


def _safe(name: str) -> PurePosixPath:
    """A relative path that stays where it is. Raises BadParcel."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise BadParcel(f"{name!r} is no name for a file in a parcel")
    return path
