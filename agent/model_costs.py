"""Which model was paid what, which branches it made, and how many of them were right and won."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from agent.events import RequestSent

_BRANCH = re.compile(r"iter(\d+)-(?:branch|repair)-(b\d+)-\d+")


class ModelState(BaseModel):
    """One model of a run.

    Attributes:
        provider, model: who was asked.
        calls: requests that were charged.
        usd: what they cost, None when a price is unknown.
        branches: kernels that it wrote last, and of these `right` ones and those that became the best kernel.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: str
    model: str
    calls: int = 0
    usd: float | None = 0.0
    branches: int = 0
    right: int = 0
    accepted: int = 0


class Branch(Protocol):
    """What is to be known of a branch."""

    @property
    def iteration(self) -> int:
        """From 1."""
        ...

    @property
    def name(self) -> str:
        """`b0`."""
        ...

    @property
    def status(self) -> str:
        """`pass` is right."""
        ...

    @property
    def champion(self) -> bool:
        """Whether it is its iteration's."""
        ...


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    usd: float | None = 0.0

    def add(self, usd: float | None, calls: int) -> None:
        self.calls += calls
        self.usd = None if usd is None or self.usd is None else self.usd + usd


class ModelCosts:
    """Sums over the requests of a run, by model and by branch."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], _Sum] = {}
        self._branches: dict[tuple[int, str], _Sum] = {}
        self._writers: dict[tuple[int, str], tuple[str, str]] = {}

    def charge(self, sent: RequestSent, usd: float | None, model: str = "", calls: int = 1) -> None:
        """A request's cost, or that of an attempt that broke off (`calls` 0: another attempt follows).

        `model` answered it; it counts where the request does not say who was asked.
        """
        self._models.setdefault((sent.provider, sent.model or model), _Sum()).add(usd, calls)
        branch = branch_of(sent)
        if branch is not None:
            self._branches.setdefault(branch, _Sum()).add(usd, calls)

    def written(self, branch: tuple[int, str], sent: RequestSent | None, model: str) -> None:
        """Who wrote a branch's kernel: the one that was asked for it last."""
        if sent is not None:
            self._writers[branch] = (sent.provider, sent.model or model)

    def branch_usd(self, branch: tuple[int, str]) -> float | None:
        """What a branch cost so far, repairs included; None: an unknown price, or nothing was charged for it."""
        known = self._branches.get(branch)
        return None if known is None else known.usd

    def rows(self, branches: Iterable[Branch], accepted: Collection[int]) -> tuple[ModelState, ...]:
        """One row per model that was paid or wrote. `accepted`: iterations whose champion became the best kernel."""
        own: dict[tuple[str, str], list[Branch]] = {}
        for branch in branches:
            writer = self._writers.get((branch.iteration, branch.name))
            if writer is not None:
                own.setdefault(writer, []).append(branch)
        return tuple(
            ModelState(
                provider=who[0],
                model=who[1],
                calls=paid.calls,
                usd=paid.usd,
                branches=len(made),
                right=sum(b.status == "pass" for b in made),
                accepted=sum(b.champion and b.iteration in accepted for b in made),
            )
            for who, paid, made in (
                (who, self._models.get(who, _Sum()), own.get(who, [])) for who in dict.fromkeys([*self._models, *own])
            )
        )


def branch_of(sent: RequestSent) -> tuple[int, str] | None:
    """Iteration and name of the branch that a request is about."""
    found = _BRANCH.fullmatch(sent.key)
    return None if found is None else (int(found[1]), found[2])
