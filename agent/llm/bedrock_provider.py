"""The `bedrock` provider: Claude models on Amazon Bedrock, through the client that Anthropic's SDK has for it."""

from __future__ import annotations

import re

import anthropic
from botocore.exceptions import BotoCoreError, ConnectionError, HTTPClientError

from agent.llm.anthropic_provider import AnthropicProvider
from agent.llm.clouds import not_signed_in
from agent.llm.remote import Attempt, Failed, Failure
from agent.llm.types import Reply, Request

_NO_CREDENTIALS = re.compile(r"could not resolve .*credentials", re.I)


class BedrockProvider(AnthropicProvider):
    """Signs each request with the AWS credentials of this machine, or sends a Bedrock API key."""

    def _connect(self) -> anthropic.AnthropicBedrock:
        return anthropic.AnthropicBedrock(
            aws_region=self._settings.region,
            api_key=self._key.get_secret_value() if self._key else None,
            base_url=self._base_url,
            max_retries=0,
            timeout=self._timeout(),
        )

    def _exchange(self, request: Request, optional: frozenset[str], attempt: Attempt) -> Reply:
        try:
            return super()._exchange(request, optional, attempt)
        except (ConnectionError, HTTPClientError) as error:
            raise Failed(Failure(f"no AWS credentials: {error}", lost=True)) from None
        except BotoCoreError as error:
            raise not_signed_in(self._settings, str(error)) from None
        except RuntimeError as error:
            if not _NO_CREDENTIALS.match(str(error)):
                raise
            raise not_signed_in(self._settings, "there are no AWS credentials") from None
