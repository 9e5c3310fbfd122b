"""Recorded answers: what is recorded is what is replayed, byte for byte, and a changed prompt is told."""

from __future__ import annotations

import dataclasses
import json
import stat
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent.llm.file import FileProvider
from agent.llm.recording import RecordingProvider, read_recording, recording_path
from agent.llm.registry import make_provider
from agent.llm.replay import ReplayProvider
from agent.llm.types import LLMError, LLMSettings, Step
from tests.loopback import Fault, Loopback
from tests.unit.agent.llm.support import KEY, REQUEST, failure_of, settings_for

AWKWARD = [
    "",
    "\n",
    "one line",
    "ends in a newline\n",
    "\n\nblank lines around\n\n",
    "windows\r\nlines\r\n",
    '\ttabs, "quotes", back\\slash, ≤ ü 漢 🙂 \u2028 \x0b \x00',
]


@pytest.mark.parametrize("text", [text for text in AWKWARD if text.strip()])
def test_a_recorded_answer_is_replayed_byte_for_byte_with_its_bill(text: str, tmp_path: Path) -> None:
    with Loopback(lambda asked: text) as server:
        live = make_provider(settings_for("anthropic", server, record=str(tmp_path)), environ={"LLM_TEST_KEY": KEY})
        first = live.complete(REQUEST)
    again = ReplayProvider(LLMSettings("replay", answers=str(tmp_path))).complete(REQUEST)
    assert again.text == first.text == text
    assert (again.model, again.usage, again.stop) == (first.model, first.usage, first.stop)
    assert again.usd == 0.0
    assert again.note is None


@pytest.mark.parametrize("text", AWKWARD)
def test_prompts_are_kept_byte_for_byte_as_lines_that_a_diff_can_show(text: str, tmp_path: Path) -> None:
    asked = dataclasses.replace(REQUEST, system=text, prefix="", prompt=text)
    answered(tmp_path, "yes")
    recorder = RecordingProvider(FileProvider(LLMSettings("file", answers=str(tmp_path))), tmp_path)
    recorder.complete(asked)
    recording = read_recording(tmp_path, REQUEST.step.name)
    assert recording is not None
    assert (recording.system, recording.user) == (text, text)
    raw = json.loads(recording_path(tmp_path, REQUEST.step.name).read_text("utf-8"))
    assert raw["user"] == text.split("\n")


def answered(folder: Path, text: str) -> None:
    (folder / f"{REQUEST.step.name}.answer.md").write_bytes(text.encode())


def test_what_the_prompt_was_rendered_from_is_kept_with_the_step_it_belongs_to(tmp_path: Path) -> None:
    answered(tmp_path, "yes")
    recorder = RecordingProvider(FileProvider(LLMSettings("file", answers=str(tmp_path))), tmp_path)
    recorder.attach(Step(2, "plan"), {"profile": "of another step"})
    recorder.attach(REQUEST.step, {"profile": {"dram_pct": 95.5, "missing": None}, "budget": [1, 2]})
    recorder.complete(REQUEST)
    recording = ReplayProvider(LLMSettings("replay", answers=str(tmp_path))).recorded(REQUEST.step)
    assert recording is not None
    assert recording.context == {"profile": {"dram_pct": 95.5, "missing": None}, "budget": [1, 2]}


def test_a_context_that_json_cannot_hold_is_refused_when_given(tmp_path: Path) -> None:
    recorder = RecordingProvider(FileProvider(LLMSettings("file", answers=str(tmp_path))), tmp_path)
    with pytest.raises(ValidationError):
        recorder.attach(REQUEST.step, {"path": tmp_path})


def test_a_failed_request_leaves_no_recording(tmp_path: Path) -> None:
    with Loopback(lambda asked: Fault("status", 401, {"message": "no"})) as server:
        live = make_provider(settings_for("openai", server, record=str(tmp_path)), environ={"LLM_TEST_KEY": KEY})
        failure_of(live)
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_in_no_recording(tmp_path: Path) -> None:
    with Loopback(lambda asked: "fine") as server:
        make_provider(settings_for("openai", server, record=str(tmp_path)), environ={"LLM_TEST_KEY": KEY}).complete(
            REQUEST
        )
    assert KEY not in recording_path(tmp_path, REQUEST.step.name).read_text("utf-8")


def test_replay_says_when_the_prompt_is_another_one(tmp_path: Path) -> None:
    answered(tmp_path, "yes")
    RecordingProvider(FileProvider(LLMSettings("file", answers=str(tmp_path))), tmp_path).complete(REQUEST)
    changed = dataclasses.replace(REQUEST, prompt="Plan four methods.")
    reply = ReplayProvider(LLMSettings("replay", answers=str(tmp_path))).complete(changed)
    assert reply.text == "yes"
    assert str(reply.note).startswith("prompt differs from the recorded one (sha ")


def test_a_step_without_a_recording_is_its_own_kind_of_failure(tmp_path: Path) -> None:
    """It rejects one branch and not the run."""
    replay = ReplayProvider(LLMSettings("replay", answers=str(tmp_path)))
    assert replay.recorded(REQUEST.step) is None
    error = failure_of(replay)
    assert error.kind == "no-recording"
    assert "iter1-plan-0.json" in str(error)


@pytest.mark.parametrize("content", ["{", '{"step": "iter1-plan-0"}', "[]", '{"step": 3}'])
def test_a_damaged_recording_is_named_and_never_answered_from(content: str, tmp_path: Path) -> None:
    recording_path(tmp_path, REQUEST.step.name).write_text(content)
    error = failure_of(ReplayProvider(LLMSettings("replay", answers=str(tmp_path))))
    assert error.kind == "no-recording"
    assert "iter1-plan-0.json is not a recording" in str(error)
    assert "\n" not in str(error)


def test_a_recording_under_the_name_of_another_step_is_refused(tmp_path: Path) -> None:
    answered(tmp_path, "yes")
    RecordingProvider(FileProvider(LLMSettings("file", answers=str(tmp_path))), tmp_path).complete(REQUEST)
    recording_path(tmp_path, REQUEST.step.name).rename(recording_path(tmp_path, "iter2-plan-0"))
    with pytest.raises(LLMError, match="is a recording of iter1-plan-0"):
        ReplayProvider(LLMSettings("replay", answers=str(tmp_path))).recorded(Step(2, "plan"))


def test_the_file_provider_asks_waits_and_then_takes_the_answer(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    provider = FileProvider(LLMSettings("file", answers=str(folder), model="a colleague"))
    waiting = failure_of(provider)
    prompt = folder / "iter1-plan-0.prompt.md"
    assert waiting.kind == "waiting"
    assert str(folder / "iter1-plan-0.answer.md") in str(waiting)
    assert prompt.read_text() == f"===== SYSTEM =====\n{REQUEST.system}\n===== USER =====\n{REQUEST.user}\n"
    assert stat.S_IMODE(prompt.stat().st_mode) & stat.S_IRUSR
    answered(folder, "\ufeffthe answer\r\n")
    reply = provider.complete(REQUEST)
    assert reply.text == "the answer\r\n"
    assert (reply.model, reply.usd, reply.stop, reply.note) == ("a colleague", 0.0, "end", None)
    assert sorted(file.name for file in folder.iterdir()) == ["iter1-plan-0.answer.md", "iter1-plan-0.prompt.md"]


def test_the_file_provider_keeps_the_prompt_that_was_answered_and_says_when_it_differs(tmp_path: Path) -> None:
    provider = FileProvider(LLMSettings("file", answers=str(tmp_path)))
    failure_of(provider)
    before = (tmp_path / "iter1-plan-0.prompt.md").read_bytes()
    answered(tmp_path, "yes")
    reply = provider.complete(dataclasses.replace(REQUEST, prompt="Plan four methods."))
    assert "prompt differs" in str(reply.note)
    assert (tmp_path / "iter1-plan-0.prompt.md").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe bad"])
def test_an_answer_that_is_empty_or_no_text_is_still_waited_for(content: bytes, tmp_path: Path) -> None:
    (tmp_path / f"{REQUEST.step.name}.answer.md").write_bytes(content)
    assert failure_of(FileProvider(LLMSettings("file", answers=str(tmp_path)))).kind == "waiting"


def test_answers_without_an_api_cost_nothing(tmp_path: Path) -> None:
    settings = LLMSettings("replay", answers=str(tmp_path))
    assert ReplayProvider(settings).worst_case_usd(REQUEST) == 0.0
    assert FileProvider(settings).worst_case_usd(REQUEST) == 0.0
