"""What `tarry api` is compared with: a FastAPI handler that hands a message to a Kafka producer, and nothing else.

It reads the same body, writes the same record to the same intake, and answers 202 once all replicas have it. It has no
rights, limits, log, figures or console, and checks nothing but the types of the fields.
"""

import argparse
import asyncio
import sys
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from confluent_kafka import KafkaError, Message, Producer
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

POLL_S = 0.1


class Body(BaseModel):
    """A message to send; its delay is in milliseconds, such as `1000ms`."""

    target: str
    key: str
    value: str
    delay: str


class Bare:
    """The producer, and the thread that serves its delivery reports."""

    def __init__(self, bootstrap: str, intake: str) -> None:
        self._intake = intake
        self._is_over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "partitioner": "murmur2_random",
            }
        )
        self._thread = threading.Thread(target=self._poll)

    def start(self) -> None:
        """Serve delivery reports from now on."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Wait until all is acknowledged."""
        self._is_over = True
        self._thread.join()
        self._producer.flush()

    def _poll(self) -> None:
        while not self._is_over:
            self._producer.poll(POLL_S)

    async def send(self, body: Body) -> dict[str, object]:
        """Send one message, and wait until all replicas have it."""
        loop = asyncio.get_running_loop()
        reported: asyncio.Future[Message] = loop.create_future()
        id_ = str(uuid.uuid4())

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                loop.call_soon_threadsafe(reported.set_result, message)
            else:
                loop.call_soon_threadsafe(reported.set_exception, HTTPException(503, error.str()))

        headers: list[tuple[str, str | bytes | None]] = [
            ("tarry-target", body.target),
            ("tarry-delay-ms", body.delay.removesuffix("ms")),
            ("tarry-id", id_),
        ]
        self._producer.produce(self._intake, body.value, body.key, headers=headers, on_delivery=report)
        message = await reported
        return {"id": id_, "partition": message.partition(), "offset": message.offset()}


def make_app(bare: Bare) -> FastAPI:
    """Return the application."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        bare.start()
        yield
        bare.stop()

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/messages", status_code=202)
    async def send(body: Body) -> dict[str, object]:
        return await bare.send(body)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="a bare handler that sends")
    parser.add_argument("bootstrap")
    parser.add_argument("intake")
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    config = uvicorn.Config(
        make_app(Bare(arguments.bootstrap, arguments.intake)),
        port=arguments.port,
        http="httptools",
        loop="uvloop",
        log_config=None,
        access_log=False,
    )
    uvicorn.Server(config).run()
    sys.exit(0)


if __name__ == "__main__":
    main()
