"""The `vertex` provider: Claude models on Google's Vertex AI, through the client that Anthropic's SDK has for it."""

from __future__ import annotations

import anthropic
from google.auth.exceptions import GoogleAuthError, TransportError

from agent.llm.anthropic_provider import AnthropicProvider
from agent.llm.clouds import not_signed_in
from agent.llm.remote import Attempt, Failed, Failure
from agent.llm.types import Reply, Request


class VertexProvider(AnthropicProvider):
    """Signs in with Google's application default credentials, renewed as they expire; a key is an access token."""

    def _connect(self) -> anthropic.AnthropicVertex:
        assert self._settings.region is not None
        assert self._settings.project is not None
        return anthropic.AnthropicVertex(
            region=self._settings.region,
            project_id=self._settings.project,
            access_token=self._key.get_secret_value() if self._key else None,
            base_url=self._base_url,
            max_retries=0,
            timeout=self._timeout(),
        )

    def _exchange(self, request: Request, optional: frozenset[str], attempt: Attempt) -> Reply:
        try:
            return super()._exchange(request, optional, attempt)
        except TransportError as error:
            raise Failed(Failure(f"no sign-in at Google: {error}", lost=True)) from None
        except GoogleAuthError as error:
            raise not_signed_in(self._settings, str(error)) from None
