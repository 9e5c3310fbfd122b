"""Batch APIs: many requests sent as one, answered within hours, at a lower price."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from agent.llm.remote import Failed, Failure, RemoteProvider
from agent.llm.retry import Transient, with_retries
from agent.llm.types import LLMError, Reply, Request

T = TypeVar("T")

_NOT_TAKEN = frozenset({429, 503, 529})
"""Statuses that say that a batch was not taken: it may be sent again. After any other failure it may exist."""

Answers = Mapping[str, Reply | LLMError]
"""What became of the requests of a batch, by step name. One that was cancelled or ran out of time is not there."""


class Batches(Protocol):
    """The batch API of one model. Every method raises LLMError.

    A batch is known by its tag, a word that no other batch has: its requests carry it, so that no answer is ever taken
    from another's batch.
    """

    def worst_case_usd(self, request: Request) -> float | None:
        """What the request costs at most in a batch; None when no price is known."""
        ...

    def send(self, tag: str, requests: Sequence[Request]) -> str:
        """Send a batch; its id. It is not sent twice, whatever happens on the way."""
        ...

    def find(self, tag: str, count: int, sent_at: float, others: Collection[str]) -> tuple[str, bool] | None:
        """The batch that was sent under a tag and whose id was lost, and whether it is certain that it is that one.

        Args:
            tag: the batch's.
            count: how many requests it holds.
            sent_at: Unix time in seconds at which it was about to be sent.
            others: ids of batches that it is not.
        """
        ...

    def poll(self, batch_id: str, tag: str, requests: Sequence[Request]) -> Answers | None:
        """What became of the requests; None while the batch is being worked on."""
        ...

    def cancel(self, batch_id: str) -> None:
        """Ask for the batch to end. What was begun may still be answered."""
        ...


class RemoteBatches(RemoteProvider):
    """What the batch APIs share. Its price is the batch API's."""

    _errors: ClassVar[tuple[type[Exception], ...]]
    """What the SDK raises, and what breaks through it."""

    @abstractmethod
    def _failure_of(self, error: Exception) -> Failure:
        """What one of `_errors` means."""

    def _asked(self, call: Callable[[], T], *, once: bool = False) -> T:
        """One call of the batch API, tried again within the policy. Raises LLMError.

        Args:
            call: makes the call.
            once: it makes something that must not be made twice.
        """

        def attempt() -> T:
            try:
                return call()
            except Failed as error:
                failure = error.failure
            except self._errors as error:
                failure = self._failure_of(error)
            classified = self._classified(failure)
            if once and isinstance(classified, Transient) and failure.status not in _NOT_TAKEN:
                raise LLMError("unavailable", str(classified), classified.context)
            raise classified

        return with_retries(attempt, self._policy)

    def _allowed(self, request: Request) -> frozenset[str]:
        """The optional parameters that the model is not known to reject."""
        with self._lock:
            return self._optional(request) - self._dropped

    def _answer(self, request: Request, read: Callable[[], Reply]) -> Reply | LLMError:
        """One request's answer. A parameter that its model rejects is left out of the batches that follow."""
        try:
            return self._finished(read(), request)
        except LLMError as error:
            return error
        except Failed as error:
            failure = error.failure
        rejected = self._rejected(failure, self._allowed(request))
        if rejected is not None:
            with self._lock:
                self._dropped.add(rejected)
        classified = self._classified(failure)
        return classified if isinstance(classified, LLMError) else LLMError("unavailable", str(classified))


def expect(answer: object, kind: type[T]) -> T:
    """The answer, if it is of that kind: the SDKs hand on whatever a server sends. Raises Failed."""
    if not isinstance(answer, kind):
        raise Failed(Failure(f"answered {str(answer)[:80]!r}, which is no {kind.__name__}"))
    return answer


def json_lines(data: bytes) -> list[Mapping[str, Any]]:
    """The objects of a JSON Lines file. Raises Failed: it is none."""
    return [_json_object(line) for line in data.split(b"\n") if line.strip()]


def json_page(data: bytes) -> list[Any]:
    """The entries of a page of a list. Raises Failed: it is none. The SDKs break where a server sends anything else."""
    entries = _json_object(data).get("data")
    return expect(entries, list)


def _json_object(data: bytes) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = expect(json.loads(data), dict)
    except ValueError:
        raise Failed(Failure(f"answered {data[:80]!r}, which is no JSON")) from None
    return found


def custom_id(tag: str, request: Request) -> str:
    """The name of a request in its batch: letters, digits, `-` and `_`, at most 64."""
    return f"{tag}-{request.step.name}"
