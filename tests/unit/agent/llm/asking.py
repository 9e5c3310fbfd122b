"""The part of a run that asks: its journal, its budget and its asking, with a real provider and no kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from tenacity import wait_none
from tenacity.wait import wait_base

from agent.asking import Asker
from agent.budget import Budget, BudgetExhausted
from agent.config import BudgetSection
from agent.errors import ModelUnusable
from agent.journal import Journal
from agent.llm.registry import make_provider
from agent.llm.types import LLMError, Reply, Request, Step
from agent.retrying import RetryLog
from agent.state import Cost
from agent.state_fold import fold
from tests.loopback import Loopback
from tests.unit.agent.llm.support import KEY, REMOTE, REQUEST, settings_for

_PRICE = 'models: {"*": {input: 2, output: 10, cache_read: 0.2, cache_write: 2.5}}'
_PRICES = "as_of: 2026-11-30\nproviders:\n" + "".join(f"  {n}: {{source: here, {_PRICE}}}\n" for n in REMOTE)


def branches(count: int, **changes: Any) -> list[Request]:
    """Requests for K branches of one iteration."""
    return [
        replace(REQUEST, step=Step(1, "branch", f"b{i}"), prompt=f"Write branch b{i}.", **changes) for i in range(count)
    ]


class AskingRun:
    """A run that only asks; `with` closes its journal.

    Args:
        folder: of the run.
        name: provider.
        server: that answers.
        budget: the section.
        wait: between attempts.
        stopped: whether Ctrl-C came.
        settings: changes of the `llm` section.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        server: Loopback,
        budget: BudgetSection | None = None,
        wait: wait_base | None = None,
        stopped: Callable[[], bool] = lambda: False,
        **settings: Any,
    ) -> None:
        self.journal = Journal(folder)
        budgeted = Budget(budget or BudgetSection())
        prices = folder / "prices.yaml"
        prices.write_text(_PRICES)
        provider = make_provider(
            settings_for(name, server, prices=str(prices), **settings),
            environ={"LLM_TEST_KEY": KEY},
            wait=wait or wait_none(),
            retried=RetryLog(self.journal, budgeted),
        )
        self.worst_usd = provider.worst_case_usd
        chosen = settings_for(name, server, **settings)
        self._asker = Asker(lambda step: provider, lambda step: chosen, self.journal, budgeted, stopped)

    @property
    def cost(self) -> Cost:
        """As `state.json` has it."""
        return fold(self.journal.events).cost

    def ask_all(self, requests: Sequence[Request]) -> list[Reply | LLMError]:
        """As a run asks; what ends a run is raised."""
        return self._asker.ask_all(requests)

    def outcome(self, request: Request = REQUEST) -> Reply | str:
        """The reply to one request, or the kind of failure that ends the run (`budget` among them)."""
        try:
            return self._asker.ask(request)
        except ModelUnusable as error:
            return error.__cause__.kind if isinstance(error.__cause__, LLMError) else "unknown"
        except LLMError as error:  # of one step alone, which decides what comes of it
            return error.kind
        except BudgetExhausted:
            return "budget"

    def __enter__(self) -> AskingRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.journal.close()
