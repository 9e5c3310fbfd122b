"""Files of the cache folder, which runs share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from backends.host_compiler import disk_error


def write_whole(path: Path, data: bytes) -> None:
    """Write all of it beside `path`, then rename: nobody reads half a file.

    Raises:
        ToolchainError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem[:20]}-", suffix=path.suffix)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except OSError as error:
        raise disk_error(error, path.parent) from error
