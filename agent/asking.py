"""The one place that asks the model: intent on disk first, budget kept, each exchange saved as sent and received."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from agent.artefacts import plain, write_text
from agent.batching import Batch, Batching, log_failure
from agent.budget import Budget, BudgetExhausted
from agent.errors import Interrupted, ModelUnusable, WaitingForAnswer
from agent.events import ReplyReceived, RequestFailed, RequestSent
from agent.journal import Journal
from agent.llm.prices import estimate_tokens
from agent.llm.recording import Plays, prompt_sha256
from agent.llm.types import LLMError, LLMSettings, Provider, Reply, Request, Step
from agent.paths import iteration_folder
from agent.state_fold import fold

# Failures that concern one step of several: the run goes on, or waits.
_OF_ONE_STEP = ("no-recording", "no-budget", "waiting")
# Failures that end the run only where nothing else of the round was answered: what was paid for is used.
_OF_ONE_STEP_AMONG_OTHERS = ("refusal", "exhausted", "unavailable")
# Between looks at the stop flag while requests are in flight: Ctrl-C answers within a second.
_POLL_S = 0.2


@runtime_checkable
class Recorder(Protocol):
    """A provider that keeps what a prompt was rendered from."""

    def attach(self, step: Step, context: Mapping[str, object]) -> None:
        """Give the context of a step before it is asked."""
        ...

    def record(self, request: Request, reply: Reply) -> Reply:
        """Record a reply that came another way."""
        ...


class Asker:
    """Asks for one run. `provider` answers a step, with `settings`; `batching` sends steps as batches first."""

    def __init__(
        self,
        provider: Callable[[Step], Provider],
        settings: Callable[[Step], LLMSettings],
        journal: Journal,
        budget: Budget,
        stopped: Callable[[], bool],
        batching: Batching | None = None,
    ) -> None:
        self._provider = provider
        self._settings = settings
        self._batching = batching
        self._journal = journal
        self._budget = budget
        self._stopped = stopped

    def recorded_context(self, step: Step) -> Mapping[str, JsonValue] | None:
        """What the recorded prompt of a step was rendered from; None when answers are not recordings."""
        provider = self._provider(step)
        if not isinstance(provider, Plays):
            return None
        recording = provider.recorded(step)
        return None if recording is None else recording.context

    def ask(self, request: Request, context: Mapping[str, object] | None = None) -> Reply:
        """One reply.

        Raises:
            LLMError: `no-recording`; the caller rejects what it asked for.
            ModelUnusable, WaitingForAnswer, BudgetExhausted, Interrupted: the run stops here.
        """
        answer = self.ask_all([request], context)[0]
        if isinstance(answer, LLMError):
            raise answer
        return answer

    def ask_all(
        self, requests: Sequence[Request], context: Mapping[str, object] | None = None
    ) -> list[Reply | LLMError]:
        """Replies to all requests, asked for at once, in their order.

        A step without a recording, or one that no longer fits the budget beside its siblings, is an LLMError there.
        """
        answers: dict[str, Reply | Exception] = {}
        batches = self._batching.prepare(requests) if self._batching is not None else []
        batched = {request.step.name for batch in batches for request in batch.requests}
        self._at_once(
            [
                *(partial(self._batch_into, answers, batch, context or {}) for batch in batches),
                *(self._job(answers, r, context) for r in requests if r.step.name not in batched),
            ]
        )
        self._at_once([self._job(answers, r, context) for r in requests if r.step.name not in answers])
        return _sort_out(requests, [answers[request.step.name] for request in requests])

    def _at_once(self, jobs: Sequence[Callable[[], None]]) -> None:
        if jobs and self._stopped():
            raise Interrupted("stopped before the model was asked")
        # Daemon threads: a request that hangs must not keep an interrupted run from ending.
        threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_POLL_S)
                if self._stopped():
                    raise Interrupted("stopped while waiting for the model")

    def _job(
        self, answers: dict[str, Reply | Exception], request: Request, context: Mapping[str, object] | None
    ) -> Callable[[], None]:
        return partial(self._into, answers, request, context or {})

    def _into(self, answers: dict[str, Reply | Exception], request: Request, context: Mapping[str, object]) -> None:
        try:
            answers[request.step.name] = self._ask_one(request, context)
        except Exception as error:  # every kind surfaces in the asking thread, by _sort_out
            answers[request.step.name] = error

    def _batch_into(self, answers: dict[str, Reply | Exception], batch: Batch, context: Mapping[str, object]) -> None:
        """The answers of a batch; who has none after it is to be asked directly."""
        assert self._batching is not None
        try:
            answers.update(self._batching.run(batch, partial(self._received, context=context)))
        except Exception as error:
            answers.update({request.step.name: error for request in batch.requests})

    def _received(self, request: Request, reply: Reply, context: Mapping[str, object]) -> Reply:
        """A reply that came in a batch, recorded, saved and logged as any other."""
        provider = self._provider(request.step)
        if isinstance(provider, Recorder):
            provider.attach(request.step, {name: plain(value) for name, value in context.items()})
            reply = provider.record(request, reply)
        return self._keep(request, reply)

    def _ask_one(self, request: Request, context: Mapping[str, object]) -> Reply:
        key = request.step.name
        done = self._journal.find(ReplyReceived, key)
        if done is not None:
            return done.reply
        failed = self._journal.find(RequestFailed, key)
        if failed is not None:
            raise LLMError(failed.kind, failed.message)
        self._budget.check_time(self._journal.elapsed_s)
        provider = self._provider(request.step)
        worst_usd = provider.worst_case_usd(request)
        worst_tokens = estimate_tokens(request.system + request.user) + request.max_output_tokens
        self._budget.reserve(lambda: fold(self._journal.events).cost, worst_usd, worst_tokens)
        try:
            return self._send(provider, request, context, worst_usd, worst_tokens)
        finally:
            # Only now: the reply is in the log, so no other request can find its cost nowhere.
            self._budget.release(worst_usd, worst_tokens)

    def _send(
        self,
        provider: Provider,
        request: Request,
        context: Mapping[str, object],
        worst_usd: float | None,
        worst_tokens: int,
    ) -> Reply:
        step = request.step
        self._journal.append(
            RequestSent(
                key=step.name,
                iteration=step.iteration,
                purpose=step.purpose,
                prompt_sha256=prompt_sha256(request),
                worst_usd=worst_usd,
                worst_tokens=worst_tokens,
                provider=self._settings(step).provider,
                model=self._settings(step).model,
            )
        )
        if isinstance(provider, Recorder):
            provider.attach(step, {name: plain(value) for name, value in context.items()})
        try:
            reply = provider.complete(request)
        except LLMError as error:
            log_failure(self._journal, step, error)
            raise
        except BudgetExhausted as error:  # between two attempts
            log_failure(self._journal, step, LLMError("no-budget", str(error)))
            raise
        return self._keep(request, reply)

    def _keep(self, request: Request, reply: Reply) -> Reply:
        step = request.step
        self._save(request, reply)
        self._journal.append(ReplyReceived(key=step.name, iteration=step.iteration, purpose=step.purpose, reply=reply))
        return reply

    def _save(self, request: Request, reply: Reply) -> None:
        folder = iteration_folder(self._journal.folder, request.step.iteration) / "prompts"
        name = request.step.name
        write_text(folder / f"{name}.prompt.md", f"{request.system}\n\n---\n\n{request.user}")
        write_text(folder / f"{name}.reply.md", reply.text)


def _sort_out(requests: Sequence[Request], answers: list[Reply | Exception]) -> list[Reply | LLMError]:
    """Raise what ends the run, worst first; leave what only one step lacks in its place."""
    answered = any(isinstance(answer, Reply) for answer in answers)
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, LLMError) and not _is_borne(request.step, answer, answered):
            raise ModelUnusable(f"the language model cannot be used: {answer}") from answer
    refused = [a for a in answers if isinstance(a, BudgetExhausted)]
    for answer in answers:
        if isinstance(answer, Exception) and not isinstance(answer, LLMError | BudgetExhausted):
            raise answer
    waiting = [str(a) for a in answers if isinstance(a, LLMError) and a.kind == "waiting"]
    if waiting:
        more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
        raise WaitingForAnswer(f"{waiting[0]}{more}; then `python -m agent resume` the run")
    if refused and len(refused) == len(answers):
        raise refused[0]
    # What was paid for is used: the steps that did not fit the budget are missing, no more.
    kept: list[Reply | LLMError] = []
    for answer in answers:
        if isinstance(answer, Reply | LLMError):
            kept.append(answer)
        else:
            kept.append(LLMError("no-budget", f"not asked for: {answer}"))
    return kept


def _is_borne(step: Step, error: LLMError, answered: bool) -> bool:
    """Whether the run goes on without this answer. Asking again for what was refused would end it at each resume."""
    if error.kind == "refusal" and step.purpose in ("repair", "ablate"):
        return True
    if error.kind == "too-long" and step.purpose == "plan":  # it is asked for with a shorter prompt
        return True
    return error.kind in _OF_ONE_STEP or (answered and error.kind in _OF_ONE_STEP_AMONG_OTHERS)
