"""Turns on the same thing: one after the other, in the order in which they were asked for."""

import asyncio

import pytest

from tarry.api.v1.turns import OneAtATime


async def settled() -> None:
    """Let all tasks run until each waits."""
    for _ in range(5):
        await asyncio.sleep(0)


class Scene:
    """Some who ask for turns, and note when they begin."""

    def __init__(self) -> None:
        self.turns = OneAtATime()
        self.begun: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    def ask(self, who: str, thing: str) -> asyncio.Task[None]:
        self.gates[who] = asyncio.Event()
        return asyncio.create_task(self._go(who, thing))

    async def _go(self, who: str, thing: str) -> None:
        async with self.turns.turn(thing):
            self.begun.append(who)
            await self.gates[who].wait()


def test_turns_come_in_the_order_in_which_they_are_asked_for() -> None:
    async def run() -> None:
        scene = Scene()
        tasks = [scene.ask(who, thing) for who, thing in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "a"))]
        await settled()
        assert scene.begun == ["1", "3"]
        assert len(scene.turns) == 2
        scene.gates["1"].set()
        await settled()
        assert scene.begun == ["1", "3", "2"]
        for gate in scene.gates.values():
            gate.set()
        await asyncio.gather(*tasks)
        assert scene.begun == ["1", "3", "2", "4"]
        assert len(scene.turns) == 0

    asyncio.run(run())


@pytest.mark.parametrize("gone", ["1", "2", "3"])
def test_whoever_goes_lets_the_next_one_begin_and_nobody_early(gone: str) -> None:
    async def run() -> None:
        scene = Scene()
        tasks = {who: scene.ask(who, "a") for who in ("1", "2", "3")}
        await settled()
        tasks[gone].cancel()
        await settled()
        assert scene.begun == (["1", "2"] if gone == "1" else ["1"])
        for gate in scene.gates.values():
            gate.set()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert scene.begun == [who for who in tasks if who != gone or who == "1"]
        assert len(scene.turns) == 0

    asyncio.run(run())


def test_whoever_is_told_to_go_in_the_moment_in_which_its_turn_comes_lets_the_next_one_begin() -> None:
    async def run() -> None:
        scene = Scene()
        tasks = [scene.ask(who, "a") for who in ("1", "2", "3")]
        await settled()
        tasks[0].add_done_callback(lambda _: tasks[1].cancel())
        scene.gates["1"].set()
        await settled()
        assert "3" in scene.begun
        scene.gates["3"].set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(scene.turns) == 0

    asyncio.run(run())


def test_a_turn_may_end_before_its_block_does() -> None:
    async def run() -> None:
        turns = OneAtATime()
        async with turns.turn("a") as end_first:
            end_first()
            assert len(turns) == 0
            async with turns.turn("a") as end_second:
                end_first()
                assert len(turns) == 1
                end_second()
        assert len(turns) == 0

    asyncio.run(run())
