"""The witness's two addresses (C2SP tlog-witness): `create_app(witness)`.

POST /add-checkpoint                           submission
GET  /<hex SHA-256 of the origin>/checkpoint   monitoring: the newest cosigned note
GET  /healthz                                  whether it answers
"""

import structlog
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from audit.witnessing import MAX_REQUEST_BYTES, SIZE_TYPE, TEXT_TYPE, Answer
from service.witness.cosigning import Witness

log = structlog.get_logger(__name__)


def create_app(witness: Witness) -> FastAPI:
    """Build the web application of one witness."""
    app = FastAPI(title="Placet witness", docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/add-checkpoint")
    async def add_checkpoint(request: Request) -> Response:
        body = await _bounded(request)
        answer = await run_in_threadpool(witness.add_checkpoint, body)
        _note_down(answer)
        # As a header, since `media_type` would add a character set to the protocol's own type.
        return Response(answer.body, answer.status, headers={"Content-Type": answer.content_type})

    @app.get("/{origin_sha256}/checkpoint")
    def checkpoint(origin_sha256: str) -> Response:
        note = witness.note(origin_sha256)
        if note is None:
            return Response("no checkpoint of this log\n", 404, media_type=TEXT_TYPE)
        return Response(note, media_type=TEXT_TYPE, headers={"Cache-Control": "no-store"})

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", media_type=TEXT_TYPE)

    return app


async def _bounded(request: Request) -> bytes:
    """Read the body, and of one that is too large as much as shows that it is."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_REQUEST_BYTES:
            break
    return bytes(body[: MAX_REQUEST_BYTES + 1])


def _note_down(answer: Answer) -> None:
    if answer.store is not None:
        log.info("witness.cosigned", origin=answer.store.origin, size=answer.store.size)
        return
    said = answer.body.decode("utf-8", "replace").strip()
    if answer.content_type == SIZE_TYPE:
        log.info("witness.told_size", size=said)  # how a log learns where to go on
    else:
        log.warning("witness.refused", status=answer.status, reason=said[:200])
