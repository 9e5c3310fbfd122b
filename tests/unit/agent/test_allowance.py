"""A night's budget cuts a run's own, and neither is ever raised by the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.allowance import UNBOUNDED, Allowance
from agent.config import BudgetSection, load_config
from agent.paths import CONFIGS
from agent.state import Cost, State


@pytest.mark.parametrize(
    ("own", "allowance", "usd", "minutes"),
    [
        (BudgetSection(), UNBOUNDED, None, None),
        (BudgetSection(usd=5, minutes=60), UNBOUNDED, 5, 60),
        (BudgetSection(), Allowance(usd=3, minutes=20), 5, 30),
        (BudgetSection(usd=4, minutes=25), Allowance(usd=3, minutes=20), 4, 25),
        (BudgetSection(usd=9, minutes=90), Allowance(usd=3, minutes=20), 5, 30),
        (BudgetSection(usd=9), Allowance(usd=0.0), 2, None),
    ],
)
def test_what_may_still_be_spent_is_added_to_what_was(
    own: BudgetSection, allowance: Allowance, usd: float | None, minutes: float | None
) -> None:
    """A run that spent $2 in 10 minutes before it was resumed."""
    config = load_config(Path(CONFIGS / "quickstart.yaml")).model_copy(update={"budget": own})
    budget = allowance.applied(config, State(cost=Cost(usd=2.0), elapsed_s=600)).budget
    assert (budget.usd, budget.minutes, budget.tokens) == (usd, minutes, own.tokens)
