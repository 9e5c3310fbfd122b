"""The three providers over HTTP, through their real SDKs: what a run gets from each, whatever the server does."""

from __future__ import annotations

import dataclasses
import threading
import traceback

import pytest

from agent.llm.registry import make_provider
from agent.llm.types import Reply, Usage
from tests.loopback import OVERLOADED, Asked, Fault, Loopback, Tokens, in_turn
from tests.unit.agent.llm.support import KEY, REMOTE, REQUEST, SCHEMA, failure_of, provider_for, settings_for

each = pytest.mark.parametrize("name", REMOTE)
BUSY = Fault("status", 429, {"type": "rate_limit_error", "message": "slow down"})


@each
def test_an_answer_arrives_whole_without_the_thinking_and_with_its_bill(name: str) -> None:
    text = "Voilà:\n```cpp\nint x = 1; // ≤ 2\n```\n"

    def tokens(asked: Asked, answer: str) -> Tokens:
        return Tokens(prompt=1000, cached=400, written=100, output=50)

    with Loopback(lambda asked: text, tokens=tokens, thinking="first I think, at length") as server:
        reply = provider_for(name, server).complete(REQUEST)
        asked = server.asked[0]
    assert reply.text == text
    assert reply.usage == Usage(input=500, output=50, cache_read=400, cache_write=100)
    assert reply.stop == "end"
    assert reply.request_id == "req_0"
    assert reply.model == ("claude-opus-5" if name == "anthropic" else "gpt-5")
    assert (asked.system, asked.user) == (REQUEST.system, REQUEST.user)
    assert asked.body["stream"] is True
    assert KEY in (asked.headers.get("x-api-key"), asked.headers.get("authorization", "").removeprefix("Bearer "))


def test_the_bill_is_by_kind_of_token_and_unknown_prices_are_none() -> None:
    def tokens(asked: Asked, answer: str) -> Tokens:
        return Tokens(prompt=1_000_000, cached=400_000, written=100_000, output=100_000)

    with Loopback(lambda asked: "x", tokens=tokens) as server:
        known = provider_for("anthropic", server).complete(REQUEST)
        unknown = provider_for("anthropic", server, model="claude-unheard-of").complete(REQUEST)
    assert known.usd == pytest.approx(0.5 * 5.00 + 0.4 * 0.50 + 0.1 * 6.25 + 0.1 * 25.00)
    assert unknown.usd is None


@each
def test_missing_usage_is_none_and_not_a_crash_nor_zero(name: str) -> None:
    with Loopback(lambda asked: "x", tokens=lambda asked, text: None) as server:
        reply = provider_for(name, server).complete(REQUEST)
    assert reply.usage == Usage()
    assert reply.usd is None


def test_the_shared_prefix_is_marked_for_the_cache_ahead_of_the_rest() -> None:
    """Without it K branches pay the whole prompt K times."""
    with Loopback(lambda asked: "x") as server:
        provider_for("anthropic", server).complete(REQUEST)
        body = server.asked[0].body
    mark = {"type": "ephemeral"}
    prefix, rest = body["messages"][0]["content"]
    assert body["system"][0]["cache_control"] == mark
    assert prefix["cache_control"] == mark
    assert "cache_control" not in rest
    assert prefix["text"] + rest["text"] == REQUEST.user


def test_a_schema_goes_to_each_api_in_its_own_form() -> None:
    asked_with = dataclasses.replace(REQUEST, schema=SCHEMA)
    with Loopback(lambda asked: '{"tile": 64}') as server:
        for name in REMOTE:
            provider_for(name, server).complete(asked_with)
        anthropic, responses, chat = (asked.body for asked in server.asked)
    assert anthropic["output_config"]["format"]["schema"]["properties"]["tile"]["type"] == "integer"
    assert responses["text"]["format"] == {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
    assert chat["response_format"]["json_schema"] == {"name": "answer", "schema": SCHEMA, "strict": True}


def test_a_schema_that_openai_would_refuse_as_strict_is_sent_as_a_hint() -> None:
    loose = {"type": "object", "properties": {"tile": {"type": "integer"}, "why": {"type": "string"}}, "required": []}
    with Loopback(lambda asked: "{}") as server:
        provider_for("openai", server).complete(dataclasses.replace(REQUEST, schema=loose))
        body = server.asked[0].body
    assert body["text"]["format"]["strict"] is False


@each
def test_parameters_nobody_set_are_not_sent(name: str) -> None:
    with Loopback(lambda asked: "x") as server:
        provider_for(name, server).complete(REQUEST)
        body = server.asked[0].body
    assert not {"temperature", "output_config", "reasoning", "reasoning_effort", "response_format", "text"} & set(body)


@each
@pytest.mark.parametrize(
    "fault",
    [
        OVERLOADED,
        BUSY,
        Fault("status", 500),
        Fault("status", 503, "upstream connect error"),
        Fault("status", 529, {"type": "overloaded_error", "message": "Overloaded"}),
        Fault("status", 408, {"message": "timeout"}),
        Fault("error-200", error={"code": 502, "message": "provider is down"}),
        Fault("drop", text="half an answ"),
        Fault("cut", text="half an answ"),
        Fault("garbage", text="half an answ"),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}",
)
def test_what_may_pass_is_tried_again_until_it_answers(name: str, fault: Fault) -> None:
    with Loopback(in_turn(fault, fault, "whole")) as server:
        reply = provider_for(name, server).complete(REQUEST)
        assert server.count == 3
    assert reply.text == "whole"


@each
def test_retries_are_bounded_and_owned_by_one_loop(name: str) -> None:
    """The SDKs retry too by default: 4 attempts would be 12 requests."""
    with Loopback(lambda asked: OVERLOADED if asked.number % 2 else BUSY) as server:
        error = failure_of(provider_for(name, server))
        assert server.count == 4
    assert error.kind == "exhausted"
    assert "gave up after 4 attempts" in str(error)
    assert error.context["attempts"] == "4"


@each
def test_a_server_that_falls_silent_is_left_after_the_timeout(name: str) -> None:
    with Loopback(lambda asked: Fault("hang")) as server:
        error = failure_of(provider_for(name, server, timeout_s=0.2, max_attempts=2))
        assert server.count == 2
    assert error.kind == "exhausted"
    assert "llm.timeout_s" in str(error)


@each
@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (Fault("status", 401, {"type": "authentication_error", "message": "invalid key"}), "auth", "LLM_TEST_KEY"),
        (Fault("status", 403, {"type": "permission_error", "message": "not for you"}), "auth", "not for you"),
        (Fault("status", 404, {"type": "not_found_error", "message": "no such model"}), "bad-request", "llm.model"),
        (Fault("status", 400, "what"), "bad-request", "HTTP 400: what"),
        (
            Fault(
                "status", 400, {"message": "input length and max_tokens exceed context limit: 174167 + 64000 > 200000"}
            ),
            "too-long",
            "llm.max_output_tokens",
        ),
        (Fault("status", 429, {"code": "insufficient_quota", "message": "check your plan"}), "unavailable", "quota"),
        (Fault("status", 400, {"message": "Your credit balance is too low"}), "unavailable", "Credit"),
        (Fault("status", 402, {"type": "billing_error", "message": "pay"}), "unavailable", "Credit"),
        (Fault("status", 400, {"code": "content_filter", "message": "filtered"}), "refusal", "filtered"),
        (Fault("status", 501, {"message": "not implemented"}), "unavailable", "501"),
        (Fault("error-200", error="model not loaded"), "unavailable", "model not loaded"),
        (Fault("html"), "unavailable", "text/html"),
        (Fault("refusal"), "refusal", "refused"),
    ],
    ids=lambda value: f"{value.kind}-{value.status}" if isinstance(value, Fault) else str(value),
)
def test_what_will_not_pass_ends_at_once_with_a_line_that_helps(name: str, fault: Fault, kind: str, says: str) -> None:
    with Loopback(lambda asked: fault) as server:
        error = failure_of(provider_for(name, server))
        assert server.count == 1
    assert error.kind == kind
    assert says in str(error)
    assert "\n" not in str(error)


def test_choices_that_are_missing_are_an_outcome_and_not_a_crash() -> None:
    with Loopback(lambda asked: Fault("no-choices")) as server:
        error = failure_of(provider_for("openai-compatible", server))
        assert server.count == 1
    assert error.kind == "unavailable"
    assert "no choices" in str(error)


def test_an_address_without_v1_says_so() -> None:
    with Loopback(lambda asked: "x") as server:
        error = failure_of(provider_for("openai-compatible", server, base_url=server.base_url))
    assert error.kind == "bad-request"
    assert "/v1 at its end" in str(error)


def test_a_server_that_is_not_there_is_named_after_the_attempts() -> None:
    with Loopback(lambda asked: "x") as server:
        provider = provider_for("openai-compatible", server)
    error = failure_of(provider)
    assert error.kind == "exhausted"
    assert "refused" in str(error).lower()


@each
def test_a_truncated_answer_is_marked_so_that_nobody_compiles_it(name: str) -> None:
    with Loopback(lambda asked: Fault("truncated", text="```cpp\nint x")) as server:
        reply = provider_for(name, server).complete(REQUEST)
    assert reply.stop == "truncated"
    assert reply.text == "```cpp\nint x"
    assert reply.usage.output


@each
def test_reasoning_that_ate_the_limit_says_what_to_change(name: str) -> None:
    with Loopback(lambda asked: Fault("thought-only")) as server:
        reply = provider_for(name, server).complete(REQUEST)
        assert server.count == 1
    assert (reply.text, reply.stop) == ("", "truncated")
    assert "llm.max_output_tokens = 64000" in str(reply.note)


@each
def test_an_empty_answer_is_billed_and_never_an_ordinary_end(name: str) -> None:
    with Loopback(lambda asked: Fault("empty")) as server:
        reply = provider_for(name, server).complete(REQUEST)
    assert (reply.text, reply.stop, reply.note) == ("", "other", "the answer is empty")
    assert reply.usage.input


@each
@pytest.mark.parametrize(
    ("parameter", "complaint"),
    [
        ("temperature", {"message": "`temperature` is deprecated for this model.", "type": "invalid_request_error"}),
        ("effort", {"message": "output_config.effort / reasoning effort is not supported by this model"}),
        ("schema", {"message": "output_config.format: json_schema / response_format is not supported"}),
    ],
)
def test_a_parameter_the_model_rejects_is_dropped_once_and_remembered(
    name: str, parameter: str, complaint: dict[str, str]
) -> None:
    spelt = {
        "temperature": ("temperature",),
        "effort": ("effort", "reasoning_effort"),
        "schema": ("format", "response_format"),
    }[parameter]

    def has(asked: Asked) -> bool:
        body = {**asked.body, **asked.body.get("output_config", {}), **asked.body.get("text", {})}
        return any(key in {**body, **body.get("reasoning", {})} for key in spelt)

    def answer(asked: Asked) -> str | Fault:
        return Fault("status", 400, complaint) if has(asked) else "fine"

    request = dataclasses.replace(REQUEST, schema=SCHEMA)
    with Loopback(answer) as server:
        provider = provider_for(name, server, temperature=0.7, effort="low")
        first, second = provider.complete(request), provider.complete(request)
        settings = settings_for(name, server, temperature=0.7, effort="low")
        resumed = make_provider(settings, environ={"LLM_TEST_KEY": KEY}, rejected=first.rejected)
        resumed.complete(request)
        seen = [has(asked) for asked in server.asked]
    assert seen == [True, False, False, False]
    assert first.text == second.text == "fine"
    assert parameter in str(first.note)
    assert second.note is None


def test_a_parameter_is_dropped_when_the_server_names_it_apart_from_the_message() -> None:
    complaint = {"message": "Unsupported value", "param": "temperature", "code": "unsupported_value"}
    with Loopback(in_turn(Fault("status", 400, complaint), "fine")) as server:
        reply = provider_for("openai", server, temperature=0.7).complete(REQUEST)
        assert "temperature" not in server.asked[1].body
    assert reply.text == "fine"


def test_the_limit_changes_its_name_where_the_server_wants_the_other_and_is_never_left_out() -> None:
    complaint = {
        "message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    }
    with Loopback(in_turn(Fault("status", 400, complaint), "fine")) as server:
        provider_for("openai-compatible", server).complete(REQUEST)
        first, second = (asked.body for asked in server.asked)
    assert first["max_tokens"] == second["max_completion_tokens"] == 64000
    assert "max_tokens" not in second


def test_a_limit_that_is_too_high_is_reported_and_not_renamed() -> None:
    complaint = {"message": "max_tokens is too large: 64000. This model supports at most 16384", "param": "max_tokens"}
    with Loopback(lambda asked: Fault("status", 400, complaint)) as server:
        error = failure_of(provider_for("openai-compatible", server))
        assert server.count == 1
    assert error.kind == "bad-request"
    assert "16384" in str(error)


def test_a_server_that_knows_no_stream_options_still_answers() -> None:
    complaint = {"message": "stream_options: Extra inputs are not permitted"}
    with Loopback(in_turn(Fault("status", 422, complaint), "fine")) as server:
        reply = provider_for("openai-compatible", server).complete(REQUEST)
        assert "stream_options" not in server.asked[1].body
    assert reply.text == "fine"
    assert reply.usage == Usage()


def test_reasoning_left_in_the_text_is_no_part_of_the_answer() -> None:
    with Loopback(in_turn("<think>\nmaybe {}\n</think>\n\n{}", "<think>\nand on and on")) as server:
        provider = provider_for("openai-compatible", server)
        answered, endless = provider.complete(REQUEST), provider.complete(REQUEST)
    assert answered.text == "{}"
    assert (endless.text, endless.stop) == ("", "other")


def test_a_prompt_that_the_server_cut_is_no_basis_for_an_answer() -> None:
    """Ollama keeps the last 4096 tokens of a long prompt and answers as if it had read all."""

    def tokens(asked: Asked, answer: str) -> Tokens:
        return Tokens(prompt=4046, cached=0, written=0, output=50)

    long = dataclasses.replace(REQUEST, prompt="float acc = 0.0f;\n" * 4000)
    with Loopback(lambda asked: "sure", tokens=tokens) as server:
        error = failure_of(provider_for("openai-compatible", server), long)
    assert error.kind == "unavailable"
    assert "4046 tokens" in str(error)
    assert "num_ctx" in str(error)


@each
def test_the_key_is_in_no_message_repr_or_traceback(name: str) -> None:
    """Not even where the server quotes it."""
    quoting = Fault("status", 401, {"message": f"Incorrect API key provided: {KEY}. Find yours at the usual place"})
    with Loopback(lambda asked: quoting) as server:
        provider = provider_for(name, server)
        error = failure_of(provider)
    shown = [str(error), repr(error), str(dict(error.context)), repr(provider), *traceback.format_exception(error)]
    assert "Incorrect API key" in str(error)
    assert KEY not in "\n".join(shown)


@each
def test_branches_asked_at_once_get_their_own_answers(name: str) -> None:
    with Loopback(lambda asked: asked.user.splitlines()[-1]) as server:
        provider = provider_for(name, server)
        replies: dict[int, Reply] = {}

        def ask(number: int) -> None:
            replies[number] = provider.complete(dataclasses.replace(REQUEST, prompt=f"branch {number}"))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {number: reply.text for number, reply in replies.items()} == {n: f"branch {n}" for n in range(4)}
