"""OpenAI's Batch API through its SDK: a file of requests goes up, files of answers come down."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import httpx2
import openai
from openai.types import Batch, FileObject
from openai.types.responses import Response

from agent.llm.batches import Answers, RemoteBatches, custom_id, expect, json_lines, json_page
from agent.llm.openai_provider import OpenAIProvider
from agent.llm.remote import Failed, Failure, failure_of_body
from agent.llm.types import LLMError, Reply, Request

_KEPT_S = 3 * 24 * 3600
"""How long OpenAI keeps the files: prompts and kernels are nobody else's, and a batch takes a day at most."""
_LOOKED_THROUGH = 100
_METADATA = "roofclimb"
_WORKING = frozenset({"validating", "in_progress", "finalizing", "cancelling"})
_NOT_DONE = frozenset({"batch_expired", "batch_cancelled"})
"""Codes of requests that were not begun; they cost nothing."""


class OpenAIBatches(OpenAIProvider, RemoteBatches):
    """Batches of one model of OpenAI, in the Responses API."""

    _errors: ClassVar[tuple[type[Exception], ...]] = (openai.OpenAIError, httpx2.HTTPError, ValueError)

    def send(self, tag: str, requests: Sequence[Request]) -> str:
        """Send a batch; its id. Raises LLMError."""
        lines = [
            {
                "custom_id": custom_id(tag, request),
                "method": "POST",
                "url": "/v1/responses",
                "body": self._body(request, self._allowed(request)),
            }
            for request in requests
        ]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        return self._asked(partial(self._create, tag, self._asked(partial(self._upload, tag, data))), once=True)

    def _upload(self, tag: str, data: bytes) -> str:
        made = self._client.files.create(
            file=(f"{tag}.jsonl", data),
            purpose="batch",
            expires_after={"anchor": "created_at", "seconds": _KEPT_S},
        )
        return expect(made, FileObject).id

    def _create(self, tag: str, file_id: str) -> str:
        made = self._client.batches.create(
            completion_window="24h",
            endpoint="/v1/responses",
            input_file_id=file_id,
            metadata={_METADATA: tag},
            output_expires_after={"anchor": "created_at", "seconds": _KEPT_S},
        )
        return expect(made, Batch).id

    def find(self, tag: str, count: int, sent_at: float, others: Collection[str]) -> tuple[str, bool] | None:
        """The batch that carries the tag. Raises LLMError."""
        path = f"/batches?limit={_LOOKED_THROUGH}"
        page = self._asked(lambda: json_page(self._client.get(path, cast_to=httpx2.Response).content))
        found = [Batch.construct(**entry) for entry in page]
        own = [batch.id for batch in found if (batch.metadata or {}).get(_METADATA) == tag]
        return (own[0], True) if own else None

    def poll(self, batch_id: str, tag: str, requests: Sequence[Request]) -> Answers | None:
        """What became of the requests; None while they are worked on. Raises LLMError."""
        batch = self._asked(lambda: expect(self._client.batches.retrieve(batch_id), Batch))
        if batch.status in _WORKING:
            return None
        if batch.status == "failed":
            # Found wrong before anything was begun, so nothing was charged.
            error = LLMError("bad-request", self._line(Failure(f"the batch failed: {_errors(batch)}")))
            return {request.step.name: error for request in requests}
        results = {
            str(line.get("custom_id")): line
            for file_id in (batch.output_file_id, batch.error_file_id)
            if file_id
            for line in self._lines(file_id)
        }
        answers = {}
        for request in requests:
            line = results.get(custom_id(tag, request))
            if line is not None and (line.get("error") or {}).get("code") not in _NOT_DONE:
                answers[request.step.name] = self._answer(request, partial(self._read, line))
        return answers

    def cancel(self, batch_id: str) -> None:
        """Ask for the batch to end. Raises LLMError."""
        self._asked(lambda: self._client.batches.cancel(batch_id))

    def _lines(self, file_id: str) -> list[Mapping[str, Any]]:
        return self._asked(lambda: json_lines(self._client.files.content(file_id).content))

    def _read(self, line: Mapping[str, Any]) -> Reply:
        if line.get("error"):
            raise Failed(failure_of_body(line["error"]))
        response = line.get("response") or {}
        status, body = response.get("status_code"), response.get("body")
        if status != 200 or not isinstance(body, Mapping):
            error = body.get("error", body) if isinstance(body, Mapping) else "the request failed without a reason"
            raise Failed(failure_of_body(error, status if isinstance(status, int) else None))
        return self._reply_of(Response.construct(**body), response.get("request_id"))


def _errors(batch: Batch) -> str:
    found = (batch.errors.data if batch.errors else None) or []
    return "; ".join(error.message or error.code or "no reason" for error in found) or "no reason"
