"""Where the errors of the lower packages become ends of a command, each with its exit code. The one such place."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from agent.errors import ConfigError, HarnessBroken, Interrupted, UnfitEnvironment
from backends.types import SourceError, ToolchainError
from profiling.ncu.faults import NcuFault
from profiling.types import HarnessFault, TaskError

# What a machine does to a program that is right: a full, read-only or failing disk, missing permission.
_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOTDIR, errno.EMFILE}


@contextmanager
def as_exit_codes() -> Iterator[None]:
    """Turn what the packages below raise into a `RoofclimbError`; anything else is a bug and passes."""
    try:
        yield
    except (TaskError, SourceError) as error:
        raise ConfigError(str(error)) from error
    except (ToolchainError, NcuFault) as error:
        raise UnfitEnvironment(str(error)) from error
    except InterruptedError as error:
        raise Interrupted(str(error)) from error
    except HarnessFault as fault:
        raise HarnessBroken(f"the harness failed: {fault}") from fault
    except OSError as error:
        if error.errno not in _MACHINE:
            raise
        where = f"{error.filename}: " if error.filename else ""
        raise UnfitEnvironment(f"{where}{error.strerror}; free space or mend the rights, then resume") from error
