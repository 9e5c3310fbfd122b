"""A candidate stays behind its walls when it is profiled, and where the kernel grants fewer of them."""

from __future__ import annotations

import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.process import run_process
from backends.registry import get_backend
from backends.types import BuildSpec
from profiling.counters import counter_source, profile_cpu
from profiling.findings import Ceilings, Work
from profiling.harness.arena import Arena, Layout, RandomBytes, memory_available
from profiling.harness.harness import Harness
from profiling.harness.launcher import NativeLauncher
from profiling.harness.memory import Host
from profiling.harness.runner_build import build_flush, build_native
from profiling.harness.walled import solo_command, under_tool
from profiling.harness.worker import Worker
from profiling.sanitizers import host
from profiling.sanitizers.findings import HOST_TOOLS, Tool
from profiling.types import Limits, MeasureSettings
from tests.kernels import GEMM_FAST, GEMM_SIGNATURE, compile_kernel, gemm_case, gemm_problem

SETTINGS = MeasureSettings(warmup_ms=1.0, min_time_s=0.005)
CEILINGS = Ceilings(
    copy_bytes=2e10,
    read_bytes=1e10,
    flops={"float32": 1e11},
    theoretical_flops={"float32": 2e11},
    theoretical_bytes=8e10,
    cache_bytes=1e11,
    provenance={},
)
_ROOT = Path(__file__).parents[3]
needs_root = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
needs_valgrind = pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
ESCAPES = (
    "".join(f"#include <{n}.h>\n" for n in ("arpa/inet", "fcntl", "stdio", "stdlib", "sys/socket", "unistd"))
    + """
static void escape() {
    puts("tried");
    fflush(stdout);
    int fd = open("FOLDER/escaped", O_CREAT | O_WRONLY, 0666);
    if (fd >= 0) close(fd);
    sockaddr_in to = {};
    to.sin_family = AF_INET, to.sin_port = htons(PORT), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (s >= 0) puts("socket");
    if (s >= 0 && connect(s, (sockaddr*)&to, sizeof to) == 0) puts("connected");
    if (geteuid() == 0) puts("root");
    if (system("true") == 0) puts("started a program");
    fflush(stdout);
}
"""
)


@dataclass(frozen=True, slots=True)
class Escape:
    """A right kernel that also tries to get out, where its file would lie, and whether anyone called at its port."""

    harness: Harness
    kernel: Path
    folder: Path
    target: Path
    called: Callable[[], bool]


@pytest.fixture(scope="module")
def escape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Escape]:
    folder = tmp_path_factory.mktemp("walls")
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as anyones,
        socket.create_server(("127.0.0.1", 0)) as server,
        Harness(gemm_problem(folder), SETTINGS, Limits(call_s=2.0), folder / "cache") as harness,
    ):
        Path(anyones).chmod(0o777)
        server.settimeout(0.2)

        def called() -> bool:
            try:
                server.accept()[0].close()
            except TimeoutError:
                return False
            return True

        source = ESCAPES.replace("FOLDER", anyones).replace("PORT", str(server.getsockname()[1]))
        source += GEMM_FAST.replace("{", "{ escape();", 1)
        kernel = compile_kernel(source, folder, "escapes")
        yield Escape(harness, kernel, folder, Path(anyones, "escaped"), called)


def test_without_walls_the_escape_succeeds(escape: Escape) -> None:
    """Else the tests below would show nothing."""
    code = f"import ctypes; ctypes.CDLL({str(escape.kernel)!r}).solve(None, None, None, 0, 0, 0)"
    assert "connected" in run_process([sys.executable, "-c", code], timeout_s=20.0).stdout
    assert escape.target.exists()
    assert escape.called()
    escape.target.unlink()


def test_a_profiled_call_cannot_write_connect_or_start_programs(escape: Escape) -> None:
    done = run_process(escape.harness.solo_command(escape.kernel), timeout_s=20.0)
    assert (done.returncode, done.stdout.split()) == (0, ["tried"]), done.stderr
    assert not escape.target.exists()
    assert not escape.called()


@needs_valgrind
def test_under_valgrind_neither(escape: Escape) -> None:
    out = escape.folder / "out"
    out.mkdir()
    tool = ["/usr/bin/valgrind", "--quiet", "--vgdb=no", "--log-file=log"]
    done = run_process(under_tool(escape.harness.solo_command(escape.kernel), out, tool), timeout_s=60.0)
    assert (done.returncode, done.stdout.split()) == (0, ["tried"]), done.stderr
    assert (out / "log").exists(), "the tool itself may write to its folder"
    assert not escape.target.exists()
    assert not escape.called()


@pytest.mark.parametrize("tool", HOST_TOOLS)
def test_under_a_sanitizer_neither(escape: Escape, tool: Tool) -> None:
    source = escape.folder / "escapes.cpp"
    built = host.build(tool, get_backend("cpp"), GEMM_SIGNATURE, source, BuildSpec(), escape.folder / "builds")
    assert isinstance(built, host.SanitizedBuild), built.reason
    command = solo_command(built.runner, escape.harness.stage_apart(0), built.kernel)
    done = run_process(command, timeout_s=60.0)
    said = [line for line in done.stdout.splitlines() if not line.startswith("argument ")]
    assert (done.returncode, said) == (0, ["tried"]), done.stderr
    assert not escape.target.exists()
    assert not escape.called()


@needs_valgrind
def test_under_valgrind_a_kernel_cannot_become_another_program(escape: Escape) -> None:
    """The walls let valgrind be started, and must be shut after it."""
    source = "#include <unistd.h>\n" + GEMM_FAST.replace("{", '{ execl("/bin/echo", "echo", "became", nullptr);', 1)
    out = escape.folder / "exec"
    out.mkdir()
    command = escape.harness.solo_command(compile_kernel(source, escape.folder, "becomes"))
    done = run_process(under_tool(command, out, ["/usr/bin/valgrind", "--quiet", "--vgdb=no"]), timeout_s=60.0)
    assert "became" not in done.stdout
    assert "PERM" in done.stderr or "errno 1" in done.stderr or "not permitted" in done.stderr, done.stderr


@pytest.mark.skipif(counter_source().name == "counted", reason="nothing counts events on this machine")
def test_a_profile_is_counted_behind_the_walls(escape: Escape) -> None:
    profile = profile_cpu(
        escape.harness.solo_command(escape.kernel),
        escape.harness.empty_command(),
        time_ms=1.0,
        work=Work(2e6, 1e5),
        ceilings=CEILINGS,
        mix=None,
        dtype="float32",
        timeout_s=60.0,
    )
    assert profile.level == "full", profile.note
    assert not escape.target.exists()
    assert not escape.called()


_WITHOUT = """
import json
from pathlib import Path
from profiling.counters import counter_source, profile_cpu
from tests.kernels import *
from tests.unit.profiling.test_harness_walls import CEILINGS, SETTINGS, Harness, Limits, Work
folder = Path({folder!r})
kernel = compile_kernel(GEMM_FAST, folder, "fast")
with Harness(gemm_problem(folder), SETTINGS, Limits(call_s=2.0), folder / "cache") as harness:
    harness.check_task(kernel)
    found = harness.evaluate(kernel)
    profile = profile_cpu(harness.solo_command(kernel), harness.empty_command(), time_ms=1.0, work=Work(2e6, 1e5),
                          ceilings=CEILINGS, mix=None, dtype="float32", timeout_s=60.0)
    print(json.dumps([found.verdict, found.reason, profile.note, dict(harness.layers())]))
"""


@needs_root
def test_without_the_right_to_mount_an_honest_kernel_passes_and_what_is_missing_is_named(tmp_path: Path) -> None:
    """As in a container started by plain `docker run`: builds lie in a folder of root's, a worker is not root."""
    script = tmp_path / "script.py"
    script.write_text(_WITHOUT.format(folder=str(tmp_path)))
    tmp_path.chmod(0o700)
    command = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable, str(script)]
    done = run_process(command, timeout_s=120.0, env={"PYTHONPATH": str(_ROOT)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('["pass", null, "'), done.stdout
    for layer in ("network", "ipc", "pid", "mount"):
        assert f'"{layer}": false' in done.stdout
    for layer in ("user", "seccomp", "sealed"):
        assert f'"{layer}": true' in done.stdout
    if counter_source().name == "cachegrind":
        assert "counted work only" not in done.stdout


def layers_of(options: Sequence[str], source: str, reached: Path) -> dict[str, bool]:
    """The walls around a worker that `setpriv` starts with these options, once it has loaded a kernel and run it."""
    native = build_native(GEMM_SIGNATURE, reached / "cache")
    runner = reached / "runner"
    shutil.copy(native.runner, runner)
    wrapper = reached / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nexec setpriv {" ".join(options)} {runner} "$@"\n')
    wrapper.chmod(0o755)
    host = Host(build_flush(reached / "cache"), memory_available)
    arena = Arena(Layout.of(gemm_case(4, 4, 4)), 1, RandomBytes(random.Random(1)), host)
    worker = Worker(
        NativeLauncher(wrapper, {}), compile_kernel(source, reached, "kernel"), arena, (0,), Limits(call_s=2.0)
    )
    try:
        worker.ready()
        worker.run(0, 1, "a call")
        return worker.layers
    finally:
        worker.kill()
        arena.close()


PROBE = "#include <signal.h>\n#include <stdlib.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n"


@pytest.fixture
def reached() -> Iterator[Path]:
    """A folder that any user may enter."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_root
def test_a_user_who_is_not_root_can_have_every_layer(reached: Path) -> None:
    """Else `--require-sandbox` would refuse him on a machine that grants all there is."""
    user = ["--reuid=12345", "--regid=12345", "--clear-groups"]
    if run_process(["setpriv", *user, "unshare", "--user", "--net", "true"], timeout_s=20.0).returncode != 0:
        pytest.skip("this machine does not allow user namespaces")
    source = PROBE + GEMM_FAST.replace("{", "{ if (geteuid() != 65534 || getppid() != 1) abort();", 1)
    assert [name for name, stands in layers_of(user, source, reached).items() if not stands] == []


@needs_root
def test_without_a_pid_namespace_no_other_process_can_be_signalled(reached: Path) -> None:
    """A kernel could otherwise end other runs of its user, the one that judges it among them."""
    other = "kill(getppid(), 0) == 0 || syscall(SYS_tkill, getppid(), 0) == 0"
    source = PROBE + GEMM_FAST.replace(
        "{", f"{{ if ({other} || syscall(SYS_tgkill, getppid(), getppid(), 0) == 0 || raise(0) != 0) abort();", 1
    )
    layers = layers_of(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"], source, reached)
    assert not layers["pid"]
    assert layers["seccomp"]
