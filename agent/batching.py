"""An iteration's branches as one batch per model: waited for, picked up again after a restart, given up in time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from agent.budget import Budget, BudgetExhausted
from agent.errors import Interrupted
from agent.events import ReplyReceived, RequestFailed, RequestSent
from agent.events_batch import BatchAccepted, BatchEnded, BatchSent
from agent.journal import Journal
from agent.llm.batches import Answers, Batches
from agent.llm.prices import estimate_tokens
from agent.llm.recording import prompt_sha256
from agent.llm.types import LLMError, LLMSettings, Reply, Request, Step, Usage
from agent.state_fold import fold

Outcome = Literal["finished", "cancelled", "abandoned", "refused", "lost"]
_NAP_S = 0.2


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds between looks at a batch, from `first_s` to `longest_s`, and for how long a cancelled one may go on."""

    first_s: float = 2.0
    longest_s: float = 30.0
    cancel_s: float = 180.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that go out together, their worst cost set aside.

    Attributes:
        batches: the API that takes them.
        requests: those that still lack an answer.
        sent: the intent that an earlier session logged, None for a new batch.
        worst: what each may cost, in US dollars and tokens.
        settings: who is asked.
    """

    batches: Batches
    requests: tuple[Request, ...]
    sent: BatchSent | None
    worst: tuple[tuple[float | None, int], ...]
    settings: LLMSettings


class _GivenUp(Exception):
    """Nothing will come of a batch; the message says why."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome: Outcome = outcome


class Batching:
    """Batches of one run.

    Args:
        batches: the batch API that a step's model has, None where it is to be asked directly.
        settings: whom a step asks.
        journal, budget: the run's.
        deadline_s: how long a batch may take, in seconds that the run is working.
        stopped: whether the run is to stop.
        waits: between looks.
    """

    def __init__(
        self,
        batches: Callable[[Step], Batches | None],
        settings: Callable[[Step], LLMSettings],
        journal: Journal,
        budget: Budget,
        deadline_s: float,
        stopped: Callable[[], bool],
        waits: Waits = Waits(),
    ) -> None:
        self._batches = batches
        self._settings = settings
        self._journal = journal
        self._budget = budget
        self._deadline_s = deadline_s
        self._stopped = stopped
        self._waits = waits

    def prepare(self, requests: Sequence[Request]) -> list[Batch]:
        """The batches that these requests go out in, or went. Who is in none is to be asked directly.

        A request that does not fit the budget is in none either: asked directly it costs more, and is refused.
        """
        open_batches = {name: sent for sent in self._open() for name in sent.steps}
        tried = {name for sent in self._journal.all(BatchSent) for name in sent.steps}
        groups: dict[tuple[Batches, BatchSent | None], list[Request]] = {}
        for request in requests:
            step = request.step
            if (step.purpose, step.attempt) != ("branch", 0) or self._journal.find(ReplyReceived, step.name):
                continue
            sent = open_batches.get(step.name)
            batches = self._batches(step)
            if batches is not None and (sent is not None or step.name not in tried):
                groups.setdefault((batches, sent), []).append(request)
        prepared = [self._with_worst(batches, sent, group) for (batches, sent), group in groups.items()]
        return [batch for batch in prepared if batch.requests]

    def _open(self) -> list[BatchSent]:
        return [sent for sent in self._journal.all(BatchSent) if self._journal.find(BatchEnded, sent.key) is None]

    def _with_worst(self, batches: Batches, sent: BatchSent | None, requests: Sequence[Request]) -> Batch:
        """The batch with its worst cost set aside. What is under way already counts whether it fits or not."""
        kept = []
        for request in requests:
            tokens = estimate_tokens(request.system + request.user) + request.max_output_tokens
            worst = (batches.worst_case_usd(request), tokens)
            if sent is not None:
                self._budget.hold(*worst)
            else:
                try:
                    self._budget.reserve(lambda: fold(self._journal.events).cost, *worst)
                except BudgetExhausted:
                    continue
            kept.append((request, worst))
        settings = self._settings(requests[0].step)
        return Batch(batches, tuple(r for r, _ in kept), sent, tuple(w for _, w in kept), settings)

    def run(self, batch: Batch, received: Callable[[Request, Reply], Reply]) -> dict[str, Reply | BudgetExhausted]:
        """Send a batch, or pick it up again, and wait for it.

        Args:
            batch: one of `prepare`.
            received: saves and logs a reply.

        Returns:
            The replies by step name. What is missing failed and is to be asked for directly, unless the run's minutes
            are used up: then it is that.

        Raises:
            LLMError: the key is not accepted.
            Interrupted: the run is to stop. The batch goes on.
        """
        try:
            return self._run(batch, received)
        finally:
            for worst in batch.worst:
                self._budget.release(*worst)

    def _run(self, batch: Batch, received: Callable[[Request, Reply], Reply]) -> dict[str, Reply | BudgetExhausted]:
        sent = self._intend(batch)
        answers: Answers = {}
        try:
            answers, outcome, reason = self._wait(batch, sent, self._accepted(batch, sent))
        except _GivenUp as given_up:
            outcome, reason = given_up.outcome, str(given_up)
        replies: dict[str, Reply | BudgetExhausted] = {}
        for request in batch.requests:
            answer = answers.get(request.step.name)
            if isinstance(answer, Reply):
                replies[request.step.name] = received(request, answer)
            elif outcome not in ("abandoned", "lost"):
                lost = LLMError("unavailable", f"batch {outcome}{f': {reason}' if reason else ''}")
                log_failure(self._journal, request.step, answer or lost)
            # else it may be answered yet: the state counts it at the most it can cost
        self._end(sent, outcome, reason)
        try:
            self._budget.check_time(self._journal.elapsed_s)
        except BudgetExhausted as exhausted:
            replies |= {r.step.name: exhausted for r in batch.requests if r.step.name not in replies}
        return replies

    def _intend(self, batch: Batch) -> BatchSent:
        """The intent on disk: the batch's, then one for each of its requests."""
        iteration, settings = batch.requests[0].step.iteration, batch.settings
        sent = batch.sent or self._journal.append(
            BatchSent(
                key=f"iter{iteration}-batch-{batch.requests[0].step.target}",
                iteration=iteration,
                provider=settings.provider,
                model=settings.model,
                tag=secrets.token_hex(6),
                steps=tuple(request.step.name for request in batch.requests),
            )
        )
        for request, (usd, tokens) in zip(batch.requests, batch.worst, strict=True):
            known = self._journal.find(RequestSent, request.step.name)
            if known is None or known.batch != sent.key:
                self._journal.append(
                    RequestSent(
                        key=request.step.name,
                        iteration=iteration,
                        purpose=request.step.purpose,
                        prompt_sha256=prompt_sha256(request),
                        worst_usd=usd,
                        worst_tokens=tokens,
                        provider=settings.provider,
                        model=settings.model,
                        batch=sent.key,
                    )
                )
        return sent

    def _accepted(self, batch: Batch, sent: BatchSent) -> BatchAccepted:
        """The batch's id: known, found again, or new. Raises LLMError: the key is not accepted."""
        known = self._journal.find(BatchAccepted, sent.key)
        if known is not None:
            return known
        found = self._find(batch, sent) if batch.sent is not None else None
        if found is None:
            try:
                found = (batch.batches.send(sent.tag, batch.requests), True)
            except LLMError as error:
                if error.kind == "auth":
                    raise
                # The answer may have been lost, and not the batch.
                found = None if error.kind == "bad-request" else self._find(batch, sent)
                if found is None:
                    raise _GivenUp("refused", str(error)) from None
        return self._journal.append(
            BatchAccepted(key=sent.key, iteration=sent.iteration, batch_id=found[0], certain=found[1])
        )

    def _find(self, batch: Batch, sent: BatchSent) -> tuple[str, bool] | None:
        others = [accepted.batch_id for accepted in self._journal.all(BatchAccepted)]
        sent_at = datetime.fromisoformat(sent.at).timestamp()
        try:
            return batch.batches.find(sent.tag, len(sent.steps), sent_at, others)
        except LLMError as error:
            if error.kind == "auth":
                raise
            raise _GivenUp("lost", str(error)) from None

    def _wait(self, batch: Batch, sent: BatchSent, accepted: BatchAccepted) -> tuple[Answers, Outcome, str]:
        """Look until the batch has ended. Past the deadline it is cancelled, and what was answered by then is kept."""
        wait_s, cancelled_at, reason = self._waits.first_s, None, ""
        while True:
            answers = self._poll(batch, sent, accepted)
            if answers is not None:
                return answers, "finished" if cancelled_at is None else "cancelled", reason
            if cancelled_at is None:
                reason = self._overdue(sent)
                if reason:
                    cancelled_at, wait_s = time.monotonic(), self._waits.first_s
                    self._cancel(batch, accepted)
            elif time.monotonic() - cancelled_at > self._waits.cancel_s:
                raise _GivenUp("abandoned", reason)
            self._sleep(wait_s)
            wait_s = min(1.5 * wait_s, self._waits.longest_s)

    def _poll(self, batch: Batch, sent: BatchSent, accepted: BatchAccepted) -> Answers | None:
        """What became of the batch; None while it is worked on, and while the provider cannot be asked."""
        try:
            answers = batch.batches.poll(accepted.batch_id, sent.tag, batch.requests)
        except LLMError as error:
            if error.kind == "auth":
                raise
            if error.kind == "bad-request":
                raise _GivenUp("lost", str(error)) from None
            return None
        if not answers and answers is not None and not accepted.certain:
            raise _GivenUp("lost", f"{accepted.batch_id} was another's")
        return answers

    def _overdue(self, sent: BatchSent) -> str:
        """Why the batch is to be given up, "" while it has time."""
        if self._journal.elapsed_s - sent.elapsed_s > self._deadline_s:
            return f"no answer within llm.batch_deadline_minutes = {self._deadline_s / 60:g}"
        try:
            self._budget.check_time(self._journal.elapsed_s)
        except BudgetExhausted as exhausted:
            return str(exhausted)
        return ""

    def _cancel(self, batch: Batch, accepted: BatchAccepted) -> None:
        if not accepted.certain:
            return  # It may be another's.
        try:
            batch.batches.cancel(accepted.batch_id)
        except LLMError as error:
            if error.kind == "auth":
                raise  # anything else shows in the looks that follow

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._stopped():
                raise Interrupted("stopped while waiting for a batch")
            time.sleep(min(_NAP_S, left))

    def _end(self, sent: BatchSent, outcome: Outcome, reason: str) -> None:
        answered = sum(self._journal.find(ReplyReceived, name) is not None for name in sent.steps)
        self._journal.append(
            BatchEnded(key=sent.key, iteration=sent.iteration, outcome=outcome, answered=answered, reason=reason)
        )


def log_failure(journal: Journal, step: Step, error: LLMError) -> None:
    """Log a request that failed, and what it costs all the same."""
    # A missing recording stays missing; anything else is asked again when the run is resumed.
    number = len(journal.all(RequestFailed))
    journal.append(
        RequestFailed(
            key=step.name if error.kind == "no-recording" else f"{step.name}#{number}",
            step=step.name,
            iteration=step.iteration,
            purpose=step.purpose,
            kind=error.kind,
            message=str(error),
            usd=error.spent.usd if error.spent else None,
            usage=error.spent.usage if error.spent else Usage(),
        )
    )
