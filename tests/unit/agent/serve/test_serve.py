"""`serve` asked over HTTP: what it shows, what it refuses, and that it starts and ends at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.serve.serving import ROOT, Server, serving
from tests.writer import write_run

SECRET = "what lies outside"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs and much that is none."""
    base = tmp_path_factory.mktemp("served")
    (base / "secret.txt").write_text(SECRET)
    (base / "outside").mkdir()
    write_run(base / "outside" / "run_9")
    runs = base / "runs"
    write_run(runs / "run_1")
    write_run(runs / "run_2")
    (runs / "latest").symlink_to("run_2")
    (runs / "run_1" / "out.txt").symlink_to(base / "secret.txt")
    (runs / "run_1" / "up").symlink_to("../../outside")
    (runs / "run_linked").symlink_to(base / "outside" / "run_9")
    (runs / "run_1" / ".hidden.txt").write_text(SECRET)
    os.mkfifo(runs / "run_1" / "pipe.txt")
    (runs / "run_3_empty").mkdir()
    torn = write_run(runs / "run_4")
    log = torn / "events.jsonl"
    log.write_bytes(log.read_bytes()[:-30])
    damaged = write_run(runs / "run_5")
    (damaged / "events.jsonl").write_bytes(b"\xff\xfe\x00 rubbish\n")
    (damaged / "config.yaml").write_bytes(b"\x00{[")
    odd = runs / "run_6"
    odd.mkdir()
    (odd / "events.jsonl").mkdir()
    misfit = write_run(runs / "run_7")
    lines = (misfit / "events.jsonl").read_text().splitlines(keepends=True)
    (misfit / "events.jsonl").write_text("".join(lines[20:]))
    night = runs / "night_1"
    night.mkdir()
    (night / "night.jsonl").write_text(
        '{"type":"night_started","at":"2026-11-30T01:00:00+00:00","names":["a","b"]}\n{"ty'
    )
    (night / "index.html").write_text("<!doctype html><title>the night</title>")
    return runs


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with serving(root) as running:
        yield running


def test_all_runs_are_listed_and_what_is_broken_is_named(server: Server) -> None:
    page = server.ask("/")
    assert page.status == 200
    for name in ("run_1", "run_2", "run_3_empty", "run_4", "run_5", "run_6", "run_7"):
        assert f'data-name="{name}"' in page.text
    assert "events.jsonl is damaged at line 1" in page.text
    assert "no events.jsonl: the run never began" in page.text
    assert 'href="/files/night_1/index.html"' in page.text
    assert "0 of 2" in page.text
    assert "run_linked" not in page.text
    assert "run_9" not in page.text


@pytest.mark.parametrize("name", ["run_1", "run_3_empty", "run_4", "run_5", "run_6", "run_7"])
def test_every_folder_has_a_page_however_broken(server: Server, name: str) -> None:
    assert server.ask(f"/run/{name}").status == 200
    assert server.ask(f"/fragment?run={name}").status == 200
    assert server.ask(f"/compare?a=run_1&b={name}").status == 200
    assert server.ask(f"/compare?a={name}&b={name}").status == 200


def test_reports_summaries_kernels_and_nights_are_served(server: Server) -> None:
    report = server.ask("/files/run_1/report.html")
    assert (report.status, report.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "The report" in report.text
    assert server.ask("/files/latest/summary.md").text == "# The summary\n"
    assert server.ask("/files/run_1/best/kernel.cpp").headers["content-type"] == "text/plain; charset=utf-8"
    assert "the night" in server.ask("/files/night_1/index.html").text


@pytest.mark.parametrize(
    "target",
    [
        "/files/../secret.txt",
        "/files/run_1/../../secret.txt",
        "/files/run_1/%2e%2e/%2e%2e/secret.txt",
        "/files/..%2fsecret.txt",
        "/files/%2e%2e%5csecret.txt",
        "/files//etc/passwd",
        "/files/%2fetc/passwd",
        "/files/run_1/out.txt",
        "/files/run_1/up/run_9/summary.md",
        "/files/run_linked/summary.md",
        "/files/run_1/.hidden.txt",
        "/files/run_1/pipe.txt",
        "/files/run_1/config.yaml",
        "/files/run_1/events.jsonl",
        "/files/run_1",
        "/files/run_1/",
        "/files/run_1/report.html%00",
        "/files/",
        "/run/run_linked",
        "/run/../runs/run_1",
        "/run/night_1",
        "/static/../app.py",
        "/static/%2e%2e%2fapp.py",
        "/nothing",
    ],
)
def test_nothing_outside_the_folder_and_nothing_hidden_is_shown(server: Server, target: str) -> None:
    answer = server.ask(target)
    assert answer.status == 404
    assert SECRET not in answer.text
    assert "root:" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_is_read_only(server: Server, method: str) -> None:
    for target in ("/", "/files/run_1/report.html", "/fragment"):
        answer = server.ask(target, method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_head_is_get_without_the_body(server: Server) -> None:
    head, get = server.ask("/files/run_1/report.html", "HEAD"), server.ask("/files/run_1/report.html")
    assert (head.status, head.text) == (200, "")
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "localhost.evil.example", "", "127.0.0.1.nip.io"]
)
def test_a_page_elsewhere_that_leads_its_name_here_learns_nothing(server: Server, host: str) -> None:
    answer = server.ask("/", headers={"Host": host})
    assert answer.status == 421 or (host == "" and answer.status == 400)
    assert "run_1" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:8642", "[::1]"])
def test_its_own_names_are_answered(server: Server, host: str) -> None:
    assert server.ask("/", headers={"Host": host}).status == 200


@pytest.mark.parametrize("target", ["/", "/run/run_1", "/files/run_1/report.html", "/static/serve.js", "/nothing"])
def test_no_answer_can_be_framed_sniffed_or_send_anything_elsewhere(server: Server, target: str) -> None:
    headers = server.ask(target).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers
    is_file = target.startswith("/files/")
    assert policy.startswith("sandbox") == is_file
    assert ("'unsafe-inline'" in policy) == is_file
    assert ("connect-src" in policy) != is_file


def test_what_has_not_changed_is_not_sent_again(server: Server, root: Path) -> None:
    first = server.ask("/fragment")
    same = server.ask("/fragment", headers={"If-None-Match": first.headers["etag"]})
    assert (same.status, same.text) == (304, "")
    write_run(root / "run_8")
    time.sleep(0.5)
    new = server.ask("/fragment", headers={"If-None-Match": first.headers["etag"]})
    assert new.status == 200
    assert 'data-name="run_8"' in new.text


def test_latest_leads_to_the_newest_run(server: Server) -> None:
    answer = server.ask("/run/latest")
    assert answer.status == 302
    assert answer.headers["location"].startswith("/run/run_")


def test_ctrl_c_ends_it_within_a_second_whoever_is_connected(root: Path) -> None:
    with serving(root) as running:
        running.ask("/")
        host, port = running.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as idle, socket.create_connection((host, int(port))) as half:
            half.sendall(b"GET / HT")
            idle.sendall(b"GET /static/serve.css HTTP/1.1\r\nHost: localhost\r\n\r\n")
            idle.recv(100)
            began = time.monotonic()
            running.process.send_signal(signal.SIGINT)
            out, err = running.process.communicate(timeout=20)
            took = time.monotonic() - began
    assert running.process.returncode == 0
    assert (out, err) == ("", "")
    # One second on a machine that has one to give: most of it is the interpreter's own end.
    assert took < 1.0 + os.getloadavg()[0]


def test_a_port_that_is_taken_is_one_line(root: Path) -> None:
    with serving(root) as running:
        port = running.url.rpartition(":")[2]
        told = subprocess.run(
            [sys.executable, "-m", "agent", "serve", str(root), "--port", port],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.returncode == 3
    (line,) = told.stderr.splitlines()
    assert line == (
        f"roofclimb: 127.0.0.1 port {port}: cannot be listened on (Address already in use); give another --port, "
        "or 0 for any"
    )


def test_an_address_that_others_can_reach_is_warned_of(root: Path) -> None:
    with serving(root, "--host", "0.0.0.0") as running:
        assert running.process.stderr is not None
        warning = running.process.stderr.readline()
    assert warning.startswith(
        "roofclimb: warning: 0.0.0.0 can be reached from other machines; whoever can reads all of"
    )


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("run_1", "is a run; serve the folder that holds it"),
        ("night_1", "is a night; serve the folder that holds it"),
        ("x", "no such folder"),
    ],
)
def test_what_is_no_folder_of_runs_is_one_line(root: Path, place: str, said: str) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "agent", "serve", str(root / place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2
    (line,) = told.stderr.splitlines()
    assert said in line
