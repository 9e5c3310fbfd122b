"""One request type, one reply type, one classified error: all that the loop knows of language models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

Purpose = Literal["plan", "branch", "repair", "ablate"]
ErrorKind = Literal[
    "auth", "bad-request", "too-long", "refusal", "exhausted", "unavailable", "no-recording", "no-budget", "waiting"
]
Mode = Literal["direct", "batch"]
StopReason = Literal["end", "truncated", "refusal", "other"]


@dataclass(frozen=True, slots=True)
class Step:
    """Which request of a run this is. `name` is unique in a run and stable over resumes.

    Attributes:
        iteration: from 1.
        purpose: what is asked.
        target: branch name (`b0`) or method id, None for a plan.
        attempt: 0, then 1, 2 … when the answer went back with reasons.
    """

    iteration: int
    purpose: Purpose
    target: str | None = None
    attempt: int = 0

    @property
    def name(self) -> str:
        """`iter1-plan-0`, `iter2-branch-b3-0`: file-name safe."""
        target = f"-{self.target}" if self.target else ""
        return f"iter{self.iteration}-{self.purpose}{target}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked.

    Attributes:
        step: which request of the run.
        system: system text.
        prefix: the part shared by all requests of an iteration, first and cacheable.
        prompt: the rest of the user text.
        max_output_tokens: limit of the answer.
        schema: JSON schema where the answer is one JSON object, else None.
    """

    step: Step
    system: str
    prefix: str
    prompt: str
    max_output_tokens: int
    schema: Mapping[str, Any] | None = None

    @property
    def user(self) -> str:
        """The user text as one string."""
        return f"{self.prefix}\n\n{self.prompt}" if self.prefix else self.prompt


def roomier(request: Request) -> Request:
    """The request with room for twice the answer: the one before was cut off, and the same again would be, too."""
    return replace(request, max_output_tokens=2 * request.max_output_tokens)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply by kind. `input` excludes cached tokens. None: the provider did not say."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back.

    Attributes:
        text: the visible text, thinking left out.
        model: the model that answered.
        usage: tokens by kind.
        usd: cost by the price table; 0.0 for replay and file; None when the price is unknown.
        stop: why it ended.
        request_id: the provider's id, None when it has none.
        note: what a person should know (`prompt differs from the recorded one`), else None.
        rejected: parameters that the model was found to reject, as `provider/model/parameter`.
    """

    text: str
    model: str
    usage: Usage
    usd: float | None
    stop: StopReason
    request_id: str | None = None
    note: str | None = None
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spent:
    """What an attempt without a reply may have cost: as far as the provider said, else estimated on the high side.

    Attributes:
        usage: tokens by kind.
        usd: US dollars; None when the price is unknown.
    """

    usage: Usage
    usd: float | None


@dataclass(frozen=True, slots=True)
class Retried:
    """An attempt that failed and will be made again.

    Attributes:
        step: of the request.
        attempt: which one failed, from 1.
        message: why.
        wait_s: seconds until the next.
        spent: what it may have cost, None for nothing.
    """

    step: Step
    attempt: int
    message: str
    wait_s: float
    spent: Spent | None


class LLMError(Exception):
    """The one classified error of every provider.

    `auth`, `bad-request`, `too-long` (prompt and answer do not fit the model; a plan is asked for once more, shorter),
    `refusal`, `exhausted` (retries used up) and `unavailable` (no answer that could be used) end in exit code 4, unless
    others of the same round were answered; `no-recording` and `no-budget` (it was not sent) reject one branch;
    `waiting` is the file provider's exit code 75. `spent` is what the provider charges all the same.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        context: Mapping[str, str] | None = None,
        spent: Spent | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.context: Mapping[str, str] = context or {}
        self.spent = spent


@dataclass(frozen=True, slots=True)
class LLMSettings:
    """The `llm` section of a config, resolved (paths absolute).

    Attributes:
        provider: registered name.
        model: model id; for replay and file a label.
        base_url: for openai-compatible.
        api_key_env: environment variable holding the key; None takes the provider's usual one.
        api_key_file: file holding the key.
        api_key_command: program and arguments that print the key.
        answers: folder of recorded answers (replay) or of prompts and answers (file).
        record: folder to record every exchange into, None for off.
        max_output_tokens: limit of one answer.
        timeout_s: limit of one attempt.
        max_attempts, max_retry_s: bounds of the one retry loop.
        temperature, effort: passed only when set.
        prices: price table file; None takes the shipped one.
        mode: `batch` sends the branches of an iteration through the provider's batch API, where it has one.
        region: of a cloud (bedrock, vertex).
        project: of Google Cloud (vertex).
        api_version: of the API (azure).
    """

    provider: str
    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    api_key_command: str | None = None
    answers: str | None = None
    record: str | None = None
    max_output_tokens: int = 16000
    timeout_s: float = 600.0
    max_attempts: int = 5
    max_retry_s: float = 900.0
    temperature: float | None = None
    effort: str | None = None
    prices: str | None = None
    mode: Mode = "direct"
    region: str | None = None
    project: str | None = None
    api_version: str | None = None


class Provider(Protocol):
    """A source of answers. Thread-safe: branches are asked for concurrently."""

    name: str

    def complete(self, request: Request) -> Reply:
        """Answer one request. Raises LLMError."""
        ...

    def worst_case_usd(self, request: Request) -> float | None:
        """What the request costs at most (full output limit); None when no price is known."""
        ...
