"""Requests and providers for the tests here: real SDKs against the loopback server, with no waits."""

from __future__ import annotations

import dataclasses
from typing import Any

from tenacity import wait_none

from agent.llm.registry import make_provider
from agent.llm.types import LLMError, LLMSettings, Provider, Request, Step
from tests.loopback import Loopback

REMOTE = ("anthropic", "openai", "openai-compatible")
KEY = "sk-test-5e3a91"
SCHEMA = {
    "type": "object",
    "properties": {"tile": {"type": "integer"}},
    "required": ["tile"],
    "additionalProperties": False,
}
REQUEST = Request(
    step=Step(iteration=1, purpose="plan"),
    system="You make kernels fast.",
    prefix="The kernel is slow.",
    prompt="Plan three methods.",
    max_output_tokens=64000,
)


def settings_for(name: str, server: Loopback, **changes: Any) -> LLMSettings:
    """Settings of a provider over HTTP, its key in LLM_TEST_KEY."""
    base = LLMSettings(
        provider=name,
        model="claude-opus-5" if name == "anthropic" else "gpt-5",
        base_url=server.base_url if name == "anthropic" else server.v1_url,
        api_key_env="LLM_TEST_KEY",
        max_attempts=4,
        max_output_tokens=REQUEST.max_output_tokens,
    )
    return dataclasses.replace(base, **changes)


def provider_for(name: str, server: Loopback, **changes: Any) -> Provider:
    """A provider that does not wait between attempts."""
    return make_provider(settings_for(name, server, **changes), environ={"LLM_TEST_KEY": KEY}, wait=wait_none())


def failure_of(provider: Provider, request: Request = REQUEST) -> LLMError:
    """The error a request ends in."""
    try:
        reply = provider.complete(request)
    except LLMError as error:
        return error
    raise AssertionError(f"answered {reply!r}")
