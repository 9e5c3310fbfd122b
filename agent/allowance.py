"""What a session may spend beside the run's own budget: a night's dollars and hours are shared by its runs."""

from __future__ import annotations

from dataclasses import dataclass

from agent.config import Config
from agent.state import State


@dataclass(frozen=True, slots=True)
class Allowance:
    """The most that may be spent from now on. None: no limit.

    Attributes:
        usd: dollars.
        minutes: minutes of work.
    """

    usd: float | None = None
    minutes: float | None = None

    def applied(self, config: Config, so_far: State) -> Config:
        """The config with its budget cut down to what the run has spent and may still spend."""
        spent = so_far.cost.usd or 0.0  # where a price is unknown, a dollar budget ends the run anyway
        usd = _least(config.budget.usd, None if self.usd is None else spent + self.usd)
        used = so_far.elapsed_s / 60
        minutes = _least(config.budget.minutes, None if self.minutes is None else used + self.minutes)
        return config.model_copy(update={"budget": config.budget.model_copy(update={"usd": usd, "minutes": minutes})})


UNBOUNDED = Allowance()


def _least(own: float | None, shared: float | None) -> float | None:
    return min((limit for limit in (own, shared) if limit is not None), default=None)
