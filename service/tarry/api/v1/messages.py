"""`POST /v1/messages`: send one message."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header
from starlette.responses import JSONResponse

from tarry.api.access.identity import Asker
from tarry.api.v1.answers import Sent, problems
from tarry.api.v1.body import NewMessage, wait_ms
from tarry.api.v1.sending import Answer, Sending, sending_of

router = APIRouter(tags=["messages"])

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="The request may be repeated under this key. Use a new UUID for each message.",
    ),
]


@router.post(
    "/messages",
    status_code=202,
    response_model=None,
    responses={200: {"model": Sent}, 202: {"model": Sent}, **problems(409)},
    summary="Send a message",
)
async def send(
    body: NewMessage,
    asker: Asker,
    sending: Annotated[Sending, Depends(sending_of)],
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Send one message that the service delivers later, or begin a schedule.

    202: all replicas of Kafka have it. 200: its outcome is known, too.
    """
    order = sending.order(body, idempotency_key, wait_ms(body.wait), "message")
    return response(await sending.send(asker, order))


def response(answer: Answer) -> JSONResponse:
    """Return an answer, with the address of its status."""
    headers = {"Location": answer.fields["status_url"]} if "status_url" in answer.fields else None
    return JSONResponse(answer.fields, answer.status, headers)
