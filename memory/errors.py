"""What can be wrong with a memory. Apart from the store, so that naming an error loads no database."""

from __future__ import annotations


class StoreError(Exception):
    """The memory cannot be used. One line: which memory, what is wrong, what to do. Nothing was overwritten."""


class StoreMissing(StoreError):
    """There is no memory there yet."""
