"""The `file` provider: prompts are written to a folder and answers taken from it, for machines with no network."""

from __future__ import annotations

from pathlib import Path

from agent.atomic import write_atomic
from agent.llm.types import LLMError, LLMSettings, Reply, Request, Usage


class FileProvider:
    """Writes `<step>.prompt.md` and takes `<step>.answer.md`, the raw text of the reply, when it is there."""

    def __init__(self, settings: LLMSettings) -> None:
        if not settings.answers:
            raise ValueError("llm.answers is missing: provider file needs a folder for prompts and answers")
        self.name = "file"
        self._folder = Path(settings.answers)
        self._model = settings.model or "file"

    def complete(self, request: Request) -> Reply:
        """The answer of the request's step.

        An answer that is there is taken, and the prompt file beside it left as it was; when that prompt is another
        one, the reply's note says so. Without an answer the prompt is written first.

        Raises:
            LLMError: `waiting`, when there is no answer yet or it cannot be read as text.
            OSError: the folder cannot be written.
        """
        prompt_file = self._folder / f"{request.step.name}.prompt.md"
        answer_file = self._folder / f"{request.step.name}.answer.md"
        prompt = prompt_text(request)
        context = {"step": request.step.name, "prompt": str(prompt_file), "answer": str(answer_file)}
        answer = _read(answer_file, context)
        if answer is None or not answer.strip():
            write_atomic(prompt_file, prompt)
            raise LLMError("waiting", f"waiting for {answer_file} (the question is in {prompt_file.name})", context)
        note = None
        if not prompt_file.exists():
            write_atomic(prompt_file, prompt)
        elif prompt_file.read_bytes() != prompt.encode():
            note = f"prompt differs from the one answered ({prompt_file.name})"
        return Reply(answer, self._model, Usage(), usd=0.0, stop="end", note=note)

    def worst_case_usd(self, request: Request) -> float | None:
        """Nothing: the project pays for no answer that comes as a file."""
        return 0.0


def prompt_text(request: Request) -> str:
    """The prompt file of a request: system and user text, each under a line of its own, and nothing else."""
    return f"===== SYSTEM =====\n{request.system}\n===== USER =====\n{request.user}\n"


def _read(path: Path, context: dict[str, str]) -> str | None:
    """The answer's exact text without a byte-order mark, None when there is no file yet."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        reason = f"{path} is not UTF-8 text: save it as UTF-8"
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}"
    raise LLMError("waiting", reason, context)
