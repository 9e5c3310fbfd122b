"""What a run does before it waits to send a request again: it is on disk, counted, and still within the budget."""

from __future__ import annotations

from agent.budget import Budget
from agent.events_llm import RequestRetried
from agent.journal import Journal
from agent.llm.types import Retried, Usage
from agent.state_fold import fold


class RetryLog:
    """Told of each wait by the providers' retry loop, in the thread of the request."""

    def __init__(self, journal: Journal, budget: Budget) -> None:
        self._journal = journal
        self._budget = budget

    def __call__(self, retried: Retried) -> None:
        """Log the failed attempt with what it may have cost.

        Raises:
            BudgetExhausted: with that, another attempt no longer fits, or the minutes end before the wait does.
        """
        spent = retried.spent
        number = len(self._journal.all(RequestRetried))
        self._journal.append(
            RequestRetried(
                key=f"{retried.step.name}~{number}",
                step=retried.step.name,
                iteration=retried.step.iteration,
                purpose=retried.step.purpose,
                attempt=retried.attempt,
                message=retried.message,
                wait_s=retried.wait_s,
                usage=spent.usage if spent else Usage(),
                usd=spent.usd if spent else 0.0,
            )
        )
        self._budget.check_time(self._journal.elapsed_s + retried.wait_s)
        self._budget.check_in_flight(lambda: fold(self._journal.events).cost)
