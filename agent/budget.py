"""Dollars, tokens and minutes: what is spent, what is in flight, and what may still be sent."""

from __future__ import annotations

import threading
from collections.abc import Callable

from agent.config import BudgetSection
from agent.state import Cost


class BudgetExhausted(Exception):
    """A normal end: the run stops, measures its headline and reports. The message says which budget."""


class Budget:
    """Admits a request only if, at its most, it and all in flight fit into what is left."""

    def __init__(self, section: BudgetSection) -> None:
        self._section = section
        self._in_flight_usd = 0.0
        self._in_flight_tokens = 0
        self._lock = threading.RLock()  # `reserve` holds it while it calls `hold`

    def check_time(self, elapsed_s: float) -> None:
        """Raise BudgetExhausted once the minutes are used up."""
        minutes = self._section.minutes
        if minutes is not None and elapsed_s >= 60 * minutes:
            raise BudgetExhausted(f"{minutes:g} minutes are used up")

    def reserve(self, spent_so_far: Callable[[], Cost], worst_usd: float | None, worst_tokens: int) -> None:
        """Set a request's worst case aside. `spent_so_far` is asked under the lock, so that nothing counts nowhere.

        Raises:
            BudgetExhausted: it might not fit.
        """
        with self._lock:
            spent = spent_so_far()
            self._check_usd(spent.usd, worst_usd)
            limit = self._section.tokens
            used = sum(spent.tokens.values()) + self._in_flight_tokens
            if limit is not None and used + worst_tokens > limit:
                raise BudgetExhausted(
                    f"the next request may take {worst_tokens} tokens; {max(0, limit - used)} are left"
                )
            self.hold(worst_usd, worst_tokens)

    def hold(self, worst_usd: float | None, worst_tokens: int) -> None:
        """Set aside what is in flight already, whether it fits or not."""
        with self._lock:
            self._in_flight_usd += worst_usd or 0.0
            self._in_flight_tokens += worst_tokens

    def check_in_flight(self, spent_so_far: Callable[[], Cost]) -> None:
        """Raise BudgetExhausted if what is in flight no longer fits: an attempt that failed was charged beside it."""
        with self._lock:
            spent = spent_so_far()
            usd, tokens = self._section.usd, self._section.tokens
            if usd is not None and (spent.usd is None or spent.usd + self._in_flight_usd > usd):
                raise BudgetExhausted(f"with attempts that failed, another might take more than the ${usd:g}")
            if tokens is not None and sum(spent.tokens.values()) + self._in_flight_tokens > tokens:
                raise BudgetExhausted(f"with attempts that failed, another might take more than the {tokens} tokens")

    def release(self, worst_usd: float | None, worst_tokens: int) -> None:
        """The request has ended; its real cost is in the state."""
        with self._lock:
            self._in_flight_usd -= worst_usd or 0.0
            self._in_flight_tokens -= worst_tokens

    def _check_usd(self, spent: float | None, worst: float | None) -> None:
        limit = self._section.usd
        if limit is None:
            return
        if spent is None or worst is None:
            raise BudgetExhausted("the price of a request is unknown, so the dollar budget cannot be kept")
        left = limit - spent - self._in_flight_usd
        if worst > left:
            raise BudgetExhausted(f"the next request may cost ${worst:.4f}; ${max(0.0, left):.4f} is left")
