"""What the providers over HTTP share: classification of failures, dropping of rejected parameters, cost.

A provider sends one request through its SDK and translates what the SDK raised into a `Failure`; everything that is
decided about a failure is decided here.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pydantic import BaseModel, SecretStr

from agent.llm.clouds import CLOUDS
from agent.llm.keys import key_source
from agent.llm.limits import Throttle
from agent.llm.prices import CHARS_PER_TOKEN, Price, cost_usd, estimate_tokens, worst_case_usd
from agent.llm.retry import RETRYABLE_STATUS, RetryPolicy, Transient, retry_after_s, with_retries
from agent.llm.shared_prefix import SharedPrefix
from agent.llm.types import ErrorKind, LLMError, LLMSettings, Reply, Request, Spent, Usage

_NO_CREDIT = re.compile(
    r"insufficient_quota|billing_error|billing_hard_limit|billing_not_active|credit balance is too low"
)
_REFUSED = re.compile(r"^(content_filter|content_policy_violation|bio_policy|misalignment_policy_violation)$")
_BUSY = re.compile(
    r"^(overloaded|api_error|rate_limit|timeout|server_error|internal|slow_down|engine_overloaded|throttling|service_?unavailable|model_?(stream|timeout|not_?ready))",
    re.I,
)
_TOO_LONG = re.compile(r"context.(length|window|limit)|prompt is too long|too many tokens", re.I)
_UNSUPPORTED = re.compile(r"unsupported|not supported|unrecognized|unknown|instead|not permitted|unexpected", re.I)
_TOO_MUCH_OUTPUT = re.compile(r"max(imum)?_(output_|completion_)?tokens\b", re.I)
_MAX_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in one attempt, freed from the SDK that reported it.

    Attributes:
        message: the server's words.
        status: HTTP status; None when the failure came inside a stream that began with 200.
        codes: error codes and types of the body.
        param: parameter that the server names.
        lost: no answer came, or it broke off: connection, timeout, stream cut short.
        headers: response headers.
        request_id: the provider's id.
        spent: what the attempt may have cost.
    """

    message: str
    status: int | None = None
    codes: tuple[str, ...] = ()
    param: str | None = None
    lost: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str | None = None
    spent: Spent | None = None


class Failed(Exception):
    """Carries a `Failure` out of an attempt; never leaves the provider."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Attempt:
    """What is seen of one attempt while it lasts, so that one which breaks off is billed and learned from.

    Attributes:
        begun: the answer has begun, so that it is paid for.
        usage: what the provider said so far.
        characters: output that came, thinking included.
    """

    def __init__(self, learn: Callable[[Mapping[str, str]], None]) -> None:
        self.begun = False
        self.usage = Usage()
        self.characters = 0
        self._learn = learn

    def begin(self, headers: Mapping[str, str]) -> None:
        """The answer has begun, with these response headers."""
        self.begun = True
        self._learn(headers)

    def spent(self, request: Request) -> Usage | None:
        """What the attempt may have cost: as far as it was not said, estimated from what was sent and what came."""
        if not self.begun:
            return None
        said, output = self.usage, math.ceil(self.characters / CHARS_PER_TOKEN)
        sent = estimate_tokens(request.system) + estimate_tokens(request.user) if said.input is None else said.input
        return replace(said, input=sent, output=max(output, said.output or 0))


def _is_too_long(failure: Failure) -> bool:
    return bool(_TOO_LONG.search(failure.message) or _TOO_LONG.search(" ".join(failure.codes)))


class RemoteProvider(ABC):
    """A provider over HTTP. Subclasses translate: a request into a call of their SDK, its events into a reply."""

    droppable: ClassVar[Mapping[str, re.Pattern[str]]]
    """Parameters that may be left out, each with what servers call it, in the order in which they are tried."""

    def __init__(
        self,
        settings: LLMSettings,
        key: SecretStr | None,
        base_url: str | None,
        price: Price | None,
        policy: RetryPolicy,
    ) -> None:
        self.name = settings.provider
        self._settings = settings
        self._key = key
        self._base_url = base_url
        self._price = price
        self._policy = policy
        self._dropped: set[str] = set()
        self._lock = threading.Lock()
        self._answered = False
        self._throttle = Throttle()
        self._prefix = SharedPrefix()

    @abstractmethod
    def _exchange(self, request: Request, optional: frozenset[str], attempt: Attempt) -> Reply:
        """One attempt with the given optional parameters. Raises Failed, Transient or LLMError.

        `attempt` is told when the answer begins (by `_check_stream`), and of what it holds as that comes.
        """

    @abstractmethod
    def _optional(self, request: Request) -> frozenset[str]:
        """The optional parameters (names of `droppable`) that this request would carry."""

    def complete(self, request: Request) -> Reply:
        """Answer one request. Raises LLMError."""
        return self._finished(with_retries(lambda: self._attempt(request), self._policy, request.step), request)

    def _finished(self, reply: Reply, request: Request) -> Reply:
        """The reply with its cost; a text that no file could hold is mended, and an empty one says why."""
        text = reply.text.encode("utf-8", "replace").decode("utf-8")
        notes = [reply.note] if reply.note else []
        if not text.strip():
            reply, reason = _empty(reply, request)
            notes.append(reason)
        usd = cost_usd(reply.usage, self._price)
        return replace(reply, text=text, usd=usd, note="; ".join(notes) or None)

    def worst_case_usd(self, request: Request) -> float | None:
        """What the request costs at most, in US dollars; None when no price is known."""
        return worst_case_usd(request, self._price)

    def leave_out(self, rejected: Iterable[str]) -> None:
        """Do not send what an earlier session found the model to reject (`Reply.rejected`)."""
        with self._lock:
            self._dropped |= {name.removeprefix(self._head()) for name in rejected if name.startswith(self._head())}

    def _head(self) -> str:
        return f"{self.name}/{self._settings.model}/"

    def _attempt(self, request: Request) -> Reply:
        """One attempt. A parameter that the server rejects is dropped, for good, and the request sent again at once."""
        dropped_now: list[str] = []
        while True:
            with self._lock:
                optional = self._optional(request) - self._dropped
            try:
                reply = self._send(request, optional)
            except Failed as error:
                failure = error.failure
            else:
                if dropped_now:
                    note = f"{self._settings.model} rejects {', '.join(dropped_now)}: left out from now on"
                    reply = replace(reply, note=f"{reply.note}; {note}" if reply.note else note)
                    reply = replace(reply, rejected=tuple(self._head() + name for name in dropped_now))
                self._answered = True
                return reply
            if self._is_too_roomy(failure, request):
                request = replace(request, max_output_tokens=self._settings.max_output_tokens)
                continue
            rejected = self._rejected(failure, optional)
            if rejected is None:
                raise self._classified(failure)
            dropped_now.append(rejected)
            with self._lock:
                self._dropped.add(rejected)

    def _send(self, request: Request, optional: frozenset[str]) -> Reply:
        """One exchange, within the server's limits, and behind the one that has its prefix cached."""
        begun = self._prefix.enter(request)
        tokens = estimate_tokens(request.system) + estimate_tokens(request.user)
        takes = self._throttle.admit(tokens, self._policy.sleep, self._policy.max_retry_s)

        def learn(headers: Mapping[str, str]) -> None:
            self._throttle.settle(takes, headers)
            begun()

        attempt = Attempt(learn)
        headers: Mapping[str, str] = {}
        try:
            return self._exchange(request, optional, attempt)
        except Failed as error:
            headers = error.failure.headers
            raise Failed(replace(error.failure, spent=self._priced(attempt.spent(request)))) from None
        except LLMError as error:
            error.spent = error.spent or self._priced(attempt.spent(request))
            raise
        finally:
            wait_s = retry_after_s(headers, time.time()) if headers else None
            self._throttle.settle(takes, headers, wait_s)
            begun()

    def _priced(self, usage: Usage | None) -> Spent | None:
        return None if usage is None else Spent(usage, cost_usd(usage, self._price))

    def _is_too_roomy(self, failure: Failure, request: Request) -> bool:
        """Whether the server refuses a larger answer than the config asks for, such as a cut one is given next time."""
        if failure.status not in (400, 422) or request.max_output_tokens <= self._settings.max_output_tokens:
            return False
        said = " ".join((failure.param or "", *failure.codes, failure.message))
        return bool(_TOO_MUCH_OUTPUT.search(said) or _TOO_LONG.search(said))

    def _rejected(self, failure: Failure, optional: frozenset[str]) -> str | None:
        """The optional parameter that a 400 or 422 is about; None when it is about something else."""
        if failure.status not in (400, 422):
            return None
        for name, pattern in self.droppable.items():
            if name not in optional or not pattern.search(failure.param or failure.message):
                continue
            # A limit that is too high is no unknown parameter.
            if name != "max_tokens" or _UNSUPPORTED.search(" ".join((*failure.codes, failure.message))):
                return name
        return None

    def _classified(self, failure: Failure) -> Transient | LLMError:
        """What a failure means: worth another attempt, or the end of the request with one line that helps."""
        text = self._line(failure)
        context = {"provider": self.name, "model": self._settings.model}
        if failure.request_id:
            context["request_id"] = failure.request_id
        spent = failure.spent
        if failure.lost:
            return Transient(text, context=context, spent=spent)
        status = failure.status
        if status == 402 or any(_NO_CREDIT.search(word) for word in (*failure.codes, failure.message.lower())):
            advice = "Credit or quota is used up: waiting will not help"
            return LLMError("unavailable", f"{text}. {advice}", context, spent)
        if any(_REFUSED.match(code) for code in failure.codes):
            return LLMError("refusal", text, context, spent)
        if status is None:
            numbers = {int(code) for code in failure.codes if code.isdigit()}
            busy = numbers & RETRYABLE_STATUS or any(_BUSY.match(code) for code in failure.codes)
        else:
            busy = status in RETRYABLE_STATUS
        if busy:
            return Transient(text, retry_after_s(failure.headers, time.time()), context, spent)
        if status in (401, 403):
            return LLMError("auth", f"{text}. {self._key_advice()}", context)
        if status is None or status >= 500:
            return LLMError("unavailable", text, context, spent)
        kind: ErrorKind = "too-long" if _is_too_long(failure) else "bad-request"
        return LLMError(kind, f"{text}{self._request_advice(failure)}", context)

    def _line(self, failure: Failure) -> str:
        status = f"HTTP {failure.status}: " if failure.status is not None else ""
        return f"{self.name} {self._settings.model}: {status}{self._clean(failure.message)}"

    def _clean(self, text: str) -> str:
        """A server's words on one line, cut to a readable length, without the key should the server quote it."""
        secret = self._key.get_secret_value() if self._key else ""
        line = " ".join((text.replace(secret, "[key]") if secret else text).split()).rstrip(".")
        return line if len(line) <= _MAX_MESSAGE else f"{line[:_MAX_MESSAGE]}…"

    def _key_advice(self) -> str:
        source = key_source(self._settings)
        if source is None and self.name in CLOUDS:
            return f"Check {CLOUDS[self.name].signs_in_by}, and that they may use the model"
        if source is None:
            return "The server wants a key: name it with llm.api_key_env, llm.api_key_file or llm.api_key_command"
        return f"Check the key in {source}"

    def _request_advice(self, failure: Failure) -> str:
        if failure.status == 404:
            where = f" and llm.base_url ({shown_url(self._base_url)})" if self._base_url else ""
            return f". Check llm.model ({self._settings.model}){where}{self._v1_hint()}"
        if _is_too_long(failure):
            return ". Prompt and answer do not fit the model: lower llm.max_output_tokens or take a larger model"
        return ""

    def _v1_hint(self) -> str:
        if self.name == "anthropic" or not self._base_url or "/v1" in self._base_url:
            return ""
        return "; most servers want /v1 at its end"

    def _check_stream(self, attempt: Attempt, headers: Mapping[str, str], read: Callable[[], bytes]) -> None:
        """The answer begins. Refuse a 200 that is no stream of events: an error body, a login page, a plain answer.

        Raises:
            Failed: the body is an error of the API.
            LLMError, Transient: `unavailable`, or worth another attempt once this server has answered before.
        """
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        if kind not in ("text/html", "application/json", "text/plain", "application/xhtml+xml"):
            attempt.begin(headers)
            return
        body = read()
        try:
            error = json.loads(body)["error"]
        except (ValueError, LookupError, TypeError):
            hint = f"is llm.base_url ({shown_url(self._base_url)}) right{self._v1_hint()}, or is a proxy in between?"
            start = self._clean(body.decode("utf-8", "replace"))[:80]
            message = f"answered 200 with {kind} instead of a stream: {start!r}"
            text = f"{self._line(Failure(message))}; {hint}"
            if self._answered:  # the address is right: something in between has an hour of its own
                raise Transient(text) from None
            raise LLMError("unavailable", text) from None
        raise Failed(failure_of_body(error))

    def _check_event(self, event: object) -> None:
        """Refuse a bare string or list in a stream: the SDKs hand on whatever JSON a server sends."""
        if not isinstance(event, BaseModel):
            raise Failed(Failure(f"the stream holds {str(event)[:80]!r}, which is no event of the API"))

    def _check_prompt_read(self, usage: Usage, request: Request) -> None:
        """Refuse an answer to a prompt that the server cut without a word, as Ollama does at its context window.

        No tokenizer makes more than ten characters into a token of text like ours, so fewer tokens than that were read.
        """
        if usage.input is None:
            return
        read = usage.input + (usage.cache_read or 0) + (usage.cache_write or 0)
        sent = len(request.system) + len(request.user)
        if read * 10 < sent:
            about = estimate_tokens(request.system + request.user)
            message = f"the server read {read} tokens of a prompt of about {about}: its context window is too small"
            raise LLMError("unavailable", f"{self._line(Failure(message))}; raise it (Ollama: num_ctx)")

    def _deadline(self) -> Callable[[], None]:
        """A function that raises Failed once the attempt has lasted llm.timeout_s."""
        end = time.monotonic() + self._settings.timeout_s

        def check() -> None:
            if time.monotonic() > end:
                limit = self._settings.timeout_s
                raise Failed(Failure(f"no whole answer within llm.timeout_s = {limit:g} s", lost=True))

        return check

    def _refusal(self, why: str, usage: Usage, request_id: str | None) -> LLMError:
        """The model declined. The tokens are billed all the same."""
        context = {"provider": self.name, "model": self._settings.model}
        if request_id:
            context["request_id"] = request_id
        spent = self._priced(usage)
        return LLMError("refusal", self._line(Failure(f"the model refused ({why})")), context, spent)


def _empty(reply: Reply, request: Request) -> tuple[Reply, str]:
    """A billed reply without visible text: it goes back to the caller with the reason, never out as an answer."""
    if reply.stop == "truncated":
        reason = f"no visible text: reasoning used all of llm.max_output_tokens = {request.max_output_tokens}"
        return reply, f"{reason}; raise it or lower llm.effort"
    return replace(reply, stop="other"), "the answer is empty"


def shown_url(url: str | None) -> str:
    """An address for a message, without the user name and password that it may hold."""
    return re.sub(r"//[^/@]*@", "//", url) if url else "the SDK's own"


def failure_of_body(error: object, status: int | None = None) -> Failure:
    """A failure from the `error` member of a body: an object with message, code and type, or a bare string."""
    if not isinstance(error, Mapping):
        return Failure(str(error), status)
    codes = tuple(str(error[name]) for name in ("code", "type") if error.get(name) is not None)
    param = error.get("param")
    return Failure(
        message=str(error.get("message") or error), status=status, codes=codes, param=str(param) if param else None
    )
