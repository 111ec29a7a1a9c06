"""Context managers whose exit closes them."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A context manager; its exit calls `close`."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClosing(ABC):
    """An asynchronous context manager; its exit awaits `close`."""

    @abstractmethod
    async def close(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
