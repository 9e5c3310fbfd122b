"""What is sent and read around the SDKs' signatures is what their own types name: see docs/providers.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

from agent.llm.anthropic_provider import _STOPS
from tests.loopback import Loopback
from tests.unit.agent.llm.support import REQUEST, SCHEMA, provider_for

# Refused by Anthropic's newest models, taken by older ones: sent only when the config asks for it.
UNTYPED = {"temperature"}


def sent(name: str) -> Mapping[str, Any]:
    """The body of a request with everything in it."""
    with Loopback(lambda asked: "{}") as server:
        provider = provider_for(name, server, temperature=0.5, effort="low")
        provider.complete(dataclasses.replace(REQUEST, schema=SCHEMA))
        return server.asked[0].body


def test_every_field_sent_to_anthropic_is_in_its_types() -> None:
    from anthropic.types import OutputConfigParam, StopReason, Usage
    from anthropic.types.message_create_params import MessageCreateParamsBase

    body = sent("anthropic")
    assert set(body) - set(MessageCreateParamsBase.__annotations__) == {"stream", *UNTYPED}
    assert set(body["output_config"]) == set(OutputConfigParam.__annotations__)
    assert set(_STOPS) < set(get_args(StopReason))
    read = {"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}
    assert read < set(Usage.model_fields)


def test_every_field_sent_to_the_responses_api_is_in_its_types() -> None:
    from openai.types.responses.response_create_params import ResponseCreateParamsBase
    from openai.types.responses.response_usage import InputTokensDetails

    body = sent("openai")
    assert set(body) - set(ResponseCreateParamsBase.__annotations__) == {"stream"}
    assert {"cached_tokens", "cache_write_tokens"} <= set(InputTokensDetails.model_fields)


def test_every_field_sent_to_chat_completions_is_in_its_types() -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase
    from openai.types.completion_usage import PromptTokensDetails

    body = sent("openai-compatible")
    assert set(body) - set(CompletionCreateParamsBase.__annotations__) == {"stream"}
    assert "max_completion_tokens" in CompletionCreateParamsBase.__annotations__
    assert {"cached_tokens", "cache_write_tokens"} <= set(PromptTokensDetails.model_fields)
