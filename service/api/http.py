"""How HTTP is spoken here: strict JSON, problems, conditions, idempotency, pages."""

import base64
import json
import math
import re
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlmodel import Session
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from audit.canonical import CanonicalError, canonical, digest, parse
from service.installation import Installation
from service.principals import Caller, authenticate
from service.problems import (
    BadRequest,
    IdempotencyMismatch,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    PreconditionRequired,
    Problem,
    Unauthenticated,
    Unprocessable,
    UnsupportedMediaType,
)
from service.tables import IdempotencyRecord
from service.transaction import Transaction

PROBLEM_JSON = "application/problem+json"
_ETAG = re.compile(r'"(\d{1,10})"')
_KEY = re.compile(r"[A-Za-z0-9._:-]{8,128}")
# Where a body has one of several forms, a location starts with the name of the form.
_TAGS = frozenset({"JobRequest", "DeploymentRequest"})
_BY_STATUS: dict[int, type[Problem]] = {
    problem.status: problem
    for problem in (BadRequest, NotFound, MethodNotAllowed, PayloadTooLarge, UnsupportedMediaType)
}


class StrictRequest(Request):
    """A request whose JSON is read strictly: no duplicate keys, floats, NaN or huge numbers."""

    async def body(self) -> bytes:
        """Read the body, and stop where it gets too large whatever its headers said."""
        if not hasattr(self, "_body"):
            limit, read = self._limit, bytearray()
            async for chunk in self.stream():
                read += chunk
                if len(read) > limit:
                    raise HTTPException(413, f"the body is over {limit} bytes; send less")
            self._body = bytes(read)
        return self._body

    async def json(self) -> Any:
        """Read the body; what is malformed names what was found."""
        try:
            return parse(await self.body(), max_bytes=self._limit)
        except CanonicalError as error:
            raise HTTPException(400, f"the body is no strict JSON: {error}") from error

    async def foreign_json(self) -> Any:
        """Read a body of a protocol that is not ours, where numbers may be decimal.

        Raises:
            BadRequest: malformed, a duplicate key, or a number that is none (NaN, Infinity).
        """
        try:
            return json.loads(
                await self.body(),
                object_pairs_hook=_each_key_once,
                parse_constant=_finite,
                parse_float=_finite,
            )
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the body is no JSON: {str(error)[:120]}") from error

    @property
    def _limit(self) -> int:
        return int(self.app.state.installation.max_body_bytes)


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a duplicate key")
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"`{text[:20]}` is no number")
    return number


class StrictRoute(APIRoute):
    """A route that hands endpoints a `StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Wrap FastAPI's own handler."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            kind = request.headers.get("content-type", "application/json").partition(";")[0]
            if request.method == "POST" and kind.strip().lower() != "application/json":
                raise UnsupportedMediaType(f"got `{kind[:60]}`; send `application/json`")
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def installation(request: Request) -> Installation:
    """Return what this process was built with."""
    return request.app.state.installation  # type: ignore[no-any-return]


Wired = Annotated[Installation, Depends(installation)]


def caller(
    wired: Wired, authorization: Annotated[str | None, Header(include_in_schema=False)] = None
) -> Caller:
    """Authenticate the bearer token.

    Raises:
        Unauthenticated: no, unknown, expired or revoked token.
    """
    scheme, _, secret = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated("send `Authorization: Bearer <token>`; an admin issues tokens")
    with wired.transactions.read() as session:
        return authenticate(session, secret.strip(), wired.clock)


Authenticated = Annotated[Caller, Depends(caller)]


def if_match(if_match: Annotated[str | None, Header()] = None) -> int:
    """Read the version that the caller saw.

    Raises:
        PreconditionRequired: no `If-Match`, or not one strong ETag of ours.
    """
    match = _ETAG.fullmatch((if_match or "").strip())
    if match is None:
        raise PreconditionRequired(
            'send `If-Match: "<version>"` with the ETag you read:'
            " you decide on what you saw and on nothing else"
        )
    return int(match[1])


SeenVersion = Annotated[int, Depends(if_match)]


def idempotency_key(idempotency_key: Annotated[str | None, Header()] = None) -> str:
    """Read the key that makes a creating request safe to repeat.

    Raises:
        PreconditionRequired: none, or not 8 to 128 of `A-Za-z0-9._:-`.
    """
    if idempotency_key is None or not _KEY.fullmatch(idempotency_key):
        raise PreconditionRequired(
            "send `Idempotency-Key: <8 to 128 of A-Za-z0-9._:->`, for instance a UUID, so that a"
            " retry creates nothing twice"
        )
    return idempotency_key


CreationKey = Annotated[str, Depends(idempotency_key)]
Limit = Annotated[int, Query(ge=1, le=200, description="Most items on a page.")]
After = Annotated[str | None, Query(max_length=400, description="Cursor from `next`.")]


def once(
    tx: Transaction,
    who: Caller,
    *,
    key: str,
    route: str,
    request: Any,
    now: str,
    work: Callable[[], tuple[int, dict[str, Any]]],
) -> JSONResponse:
    """Do the work of a creating request once; a repeat gets the stored answer.

    Raises:
        IdempotencyMismatch: the key was used with another body or on another route.
    """
    known = known_answer(tx.session, who, key=key, route=route, request=request)
    if known is not None:
        return known
    status, body = work()
    tx.session.add(
        IdempotencyRecord(
            principal_id=who.id,
            key=key,
            request_digest=_digest_of(route, request),
            status=status,
            response=body,
            created_at=now,
        )
    )
    headers = {"ETag": f'"{body["version"]}"'} if "version" in body else {}
    return JSONResponse(body, status, headers=headers)


def known_answer(
    session: Session, who: Caller, *, key: str, route: str, request: Any
) -> JSONResponse | None:
    """Return the stored answer to a repeated request, or None for a new one.

    Raises:
        IdempotencyMismatch: the key was used with another body or on another route.
    """
    known = session.get(IdempotencyRecord, (who.id, key))
    if known is None:
        return None
    if known.request_digest != _digest_of(route, request):
        raise IdempotencyMismatch("use a new key for another request; nothing was done")
    return JSONResponse(known.response, known.status, headers={"Idempotency-Replayed": "true"})


def _digest_of(route: str, request: Any) -> str:
    return digest(canonical({"route": route, "body": request.model_dump()}))


def page(
    request: Request, items: list[dict[str, Any]], *, limit: int, key: str, response: Response
) -> dict[str, Any]:
    """Render one page: at most `limit` items and an opaque cursor to the next.

    Args:
        request: for the address of the next page.
        items: up to limit + 1 items, in order.
        limit: items on a page.
        key: the member that orders them.
        response: gets the `Link` header (RFC 8288).
    """
    more = len(items) > limit
    shown = items[:limit]
    following = None
    if more:
        following = base64.urlsafe_b64encode(str(shown[-1][key]).encode()).decode().rstrip("=")
        url = request.url.include_query_params(after=following, limit=limit)
        response.headers["Link"] = f'<{url}>; rel="next"'
    return {"items": shown, "next": following}


def cursor(after: str | None) -> str:
    """Decode a cursor to the key it stands for; empty for the first page.

    Raises:
        BadRequest: not a cursor of ours.
    """
    if after is None:
        return ""
    try:
        return base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)).decode("ascii")
    except (ValueError, UnicodeDecodeError) as error:
        raise BadRequest("`after` is no cursor; take it from `next` of the page before") from error


def problem_response(problem: Problem, request_id: str) -> JSONResponse:
    """Render a problem."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    return JSONResponse(
        problem.to_json(request_id), problem.status, media_type=PROBLEM_JSON, headers=headers
    )


def as_problem(error: Exception) -> Problem:
    """Turn what the framework raises into one of our problems."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        errors = [
            {"pointer": _pointer(item["loc"]), "detail": _said(item)} for item in error.errors()
        ]
        first = errors[0]
        return Unprocessable(f"`{first['pointer']}`: {first['detail']}", errors=errors)
    if isinstance(error, HTTPException):
        kind = _BY_STATUS.get(error.status_code, BadRequest)
        return kind(str(error.detail))
    raise error


def _pointer(location: tuple[int | str, ...]) -> str:
    parts = location[1:] if location and location[0] == "body" else location
    parts = parts[1:] if parts and parts[0] in _TAGS else parts
    return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _said(item: dict[str, Any]) -> str:
    if item["type"] == "extra_forbidden":
        return "unknown member; remove it or correct its name"
    if item["type"] == "missing":
        return "is missing"
    got = repr(item.get("input"))
    if item["type"] == "value_error":
        return f"{item['ctx']['error']}, got {got[:80]}"
    return f"{item['msg'][0].lower()}{item['msg'][1:]}, got {got[:80]}"
