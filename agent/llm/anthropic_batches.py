"""Anthropic's Message Batches through its SDK."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import anthropic
import httpx2
from anthropic.types import Message
from anthropic.types.messages import MessageBatch

from agent.llm.anthropic_provider import AnthropicProvider
from agent.llm.batches import Answers, RemoteBatches, custom_id, expect, json_lines, json_page
from agent.llm.remote import Failed, Failure, failure_of_body
from agent.llm.types import Reply, Request

_LOOKED_THROUGH = 100
_WINDOW_S = 300.0
"""Clocks differ, and sending takes a while: a batch made this long before or after its intent may be the one."""


class AnthropicBatches(AnthropicProvider, RemoteBatches):
    """Batches of one Claude model."""

    _errors: ClassVar[tuple[type[Exception], ...]] = (anthropic.AnthropicError, httpx2.HTTPError, ValueError)

    def send(self, tag: str, requests: Sequence[Request]) -> str:
        """Send a batch; its id. Raises LLMError."""
        items: list[Any] = [
            {"custom_id": custom_id(tag, request), "params": self._body(request, self._allowed(request))}
            for request in requests
        ]
        batches = self._client.messages.batches
        return self._asked(lambda: expect(batches.create(requests=items), MessageBatch).id, once=True)

    def find(self, tag: str, count: int, sent_at: float, others: Collection[str]) -> tuple[str, bool] | None:
        """A batch of that time and size. Only one that has ended tells the names of its requests. Raises LLMError."""
        path = f"/v1/messages/batches?limit={_LOOKED_THROUGH}"
        page = self._asked(lambda: json_page(self._client.get(path, cast_to=httpx2.Response).content))
        possible: str | None = None
        for batch in (MessageBatch.construct(**entry) for entry in page):
            counts = batch.request_counts
            size = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
            if batch.id in others or size != count or abs(batch.created_at.timestamp() - sent_at) > _WINDOW_S:
                continue
            if batch.processing_status != "ended":
                possible = possible or batch.id
            elif any(name.startswith(f"{tag}-") for name in self._results(batch.id)):
                return batch.id, True
        return None if possible is None else (possible, False)

    def poll(self, batch_id: str, tag: str, requests: Sequence[Request]) -> Answers | None:
        """What became of the requests; None while they are worked on. Raises LLMError."""
        batch = self._asked(lambda: expect(self._client.messages.batches.retrieve(batch_id), MessageBatch))
        if batch.processing_status != "ended":
            return None
        results = self._results(batch_id)
        answers = {}
        for request in requests:
            result = results.get(custom_id(tag, request))
            if result is not None and result.get("type") in ("succeeded", "errored"):
                answers[request.step.name] = self._answer(request, partial(self._read, result))
        return answers

    def cancel(self, batch_id: str) -> None:
        """Ask for the batch to end. Raises LLMError."""
        self._asked(lambda: self._client.messages.batches.cancel(batch_id))

    def _results(self, batch_id: str) -> Mapping[str, Mapping[str, Any]]:
        """Results by name, from the server that the key is for: not from the address that the batch names."""
        path = f"/v1/messages/batches/{batch_id}/results"
        lines = self._asked(lambda: json_lines(self._client.get(path, cast_to=httpx2.Response).content))
        return {str(line.get("custom_id")): line.get("result") or {} for line in lines}

    def _read(self, result: Mapping[str, Any]) -> Reply:
        if result["type"] == "errored":
            raise Failed(_failure_of_item(result.get("error")))
        return self._reply_of(Message.construct(**result["message"]))


def _failure_of_item(error: object) -> Failure:
    """Why one request of a batch failed: the body that it would have been answered with, without its status."""
    told = error.get("error", error) if isinstance(error, Mapping) else "the request failed without a reason"
    wrong = isinstance(told, Mapping) and told.get("type") == "invalid_request_error"
    return failure_of_body(told, 400 if wrong else None)
