"""The `azure` provider: OpenAI's models on Azure (Responses API), through the client that OpenAI's SDK has for it."""

from __future__ import annotations

import importlib
from typing import Any

import openai

from agent.llm.clouds import not_signed_in
from agent.llm.openai_provider import OpenAIProvider
from agent.llm.remote import Attempt
from agent.llm.types import Reply, Request

_SCOPE = "https://cognitiveservices.azure.com/.default"


class AzureProvider(OpenAIProvider):
    """Sends a key, or signs in by Microsoft Entra, renewed as it expires. `llm.model` names the deployment."""

    def _connect(self) -> openai.AzureOpenAI:
        assert self._settings.base_url is not None
        self._not_signed_in: tuple[type[Exception], ...] = ()
        auth: dict[str, Any] = {"api_key": self._key.get_secret_value() if self._key else None}
        if self._key is None:
            identity: Any = importlib.import_module("azure.identity")
            self._not_signed_in = (importlib.import_module("azure.core.exceptions").AzureError,)
            credential = identity.DefaultAzureCredential()
            auth = {"azure_ad_token_provider": identity.get_bearer_token_provider(credential, _SCOPE)}
        return openai.AzureOpenAI(
            azure_endpoint=self._settings.base_url,
            api_version=self._settings.api_version,
            max_retries=0,
            timeout=self._timeout(),
            **auth,
        )

    def _exchange(self, request: Request, optional: frozenset[str], attempt: Attempt) -> Reply:
        try:
            return super()._exchange(request, optional, attempt)
        except self._not_signed_in as error:
            raise not_signed_in(self._settings, str(error)) from None
