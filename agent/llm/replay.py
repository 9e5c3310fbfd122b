"""The `replay` provider: recorded answers by step, free, and honest about prompts that differ today."""

from __future__ import annotations

from pathlib import Path

from agent.llm.recording import Recording, prompt_sha256, read_recording, recording_path, usage_of
from agent.llm.types import LLMError, LLMSettings, Reply, Request, Step


class ReplayProvider:
    """Answers from a folder that a `RecordingProvider` wrote."""

    def __init__(self, settings: LLMSettings) -> None:
        if not settings.answers:
            raise ValueError("llm.answers is missing: provider replay needs the folder of recorded answers")
        self.name = "replay"
        self._folder = Path(settings.answers)

    def recorded(self, step: Step) -> Recording | None:
        """The recording of a step, None when there is none.

        Raises:
            LLMError: `no-recording`, when the file is there but is not a recording.
        """
        try:
            return read_recording(self._folder, step.name)
        except ValueError as error:
            reason = str(error)
        raise LLMError("no-recording", reason, {"step": step.name})

    def complete(self, request: Request) -> Reply:
        """The recorded reply of the request's step. Raises LLMError (`no-recording`)."""
        recording = self.recorded(request.step)
        if recording is None:
            path = recording_path(self._folder, request.step.name)
            raise LLMError("no-recording", f"no recorded answer: {path} is not there", {"step": request.step.name})
        recorded, today = recording.prompt_sha256, prompt_sha256(request)
        note = None
        if recorded != today:
            note = f"prompt differs from the recorded one (sha {today[:12]}, recorded {recorded[:12]})"
        reply = recording.reply
        return Reply(reply.text, reply.model, usage_of(reply.usage), usd=0.0, stop=reply.stop, note=note)

    def worst_case_usd(self, request: Request) -> float | None:
        """Nothing: recorded answers are free."""
        return 0.0
