"""Operations that tests can read."""

from tarry.timer import DelayedOperation


class Request(DelayedOperation):
    """Can be completed once `answered` says so, and writes down what became of it."""

    def __init__(self, delay_ms: int = 30_000, name: str = "request") -> None:
        super().__init__(delay_ms)
        self.name = name
        self.answered = False
        self.calls: list[str] = []

    def try_complete(self) -> bool:
        return self.answered and self.force_complete()

    def on_complete(self) -> None:
        self.calls.append("completed")

    def on_expiration(self) -> None:
        self.calls.append("expired")

    def __repr__(self) -> str:
        return self.name
