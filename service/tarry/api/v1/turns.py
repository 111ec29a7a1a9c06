"""Turns: of several requests about the same thing, such as a message, one goes after the other.

The turns are those of this replica: another one knows nothing of them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager


class OneAtATime:
    """Gives turns, in the order in which they are asked for. For the event loop only.

    It holds only what somebody does or waits for now.
    """

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[asyncio.Event]] = {}
        """Who waits for each thing; the first one has the turn."""

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def turn(self, *thing: Hashable) -> AsyncIterator[Callable[[], None]]:
        """Wait for the turn, and have it until the end of the block.

        Args:
            thing: what it is about.

        Yields:
            A function that ends the turn earlier.
        """
        line, has_come = self._lines.setdefault(thing, deque()), asyncio.Event()
        line.append(has_come)

        def end() -> None:
            if has_come not in line:
                return
            line.remove(has_come)
            if line:
                line[0].set()
            else:
                del self._lines[thing]

        try:
            if line[0] is not has_come:
                await has_come.wait()
            yield end
        finally:
            end()
