"""Composition root of the web process: `create_app(installation)`."""

import contextlib
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy import text
from sqlalchemy.exc import DataError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.orm.exc import StaleDataError
from starlette.exceptions import HTTPException

from audit.event import EventKind
from service import policy_bundles
from service.api import (
    decisions,
    deployments,
    expiring,
    jobs,
    log,
    policies,
    reference,
    registry,
    waivers,
)
from service.api.http import PROBLEM_JSON, Authenticated, as_problem, problem_response
from service.engines.protocol import EngineError
from service.ids import Prefix, new_id
from service.installation import Installation
from service.objects.protocol import ObjectError
from service.principals import Caller, authenticate
from service.problems import (
    BadRequest,
    Conflict,
    EngineUnavailable,
    PayloadTooLarge,
    Problem,
    Unavailable,
)
from service.schema import is_current
from service.transaction import SYSTEM

logger = structlog.get_logger(__name__)
_API = "/v1"
DECIDED_HERE = frozenset(
    {
        *("policy", "policies", "policy_url", "policy_digest", "rules", "packs"),
        *("facts", "derived", "reference", "reference_digest", "country", "evaluated_at"),
        *("verdict", "decision", "findings", "state", "permit", "waiver", "waivers"),
        *(
            "approval",
            "approvals",
            "approved_by",
            "approver",
            "approver_id",
            "approvers",
            "decided_by",
        ),
        *("subject", "submitted_by", "requested_by", "created_by", "declared_by"),
    }
)
"""Members that no request has, since the service says them: sent ones are refused and noted."""
_PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string", "format": "uri", "description": "Stable name of the problem."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong and what to do next."},
        "instance": {"type": "string", "description": "Id of the request, also in our logs."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer (RFC 6901)."},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}


def create_app(
    installation: Installation,
    *,
    lifespan: Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """Build the web application of one installation."""
    problem = {
        "description": "A problem (RFC 9457)",
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    app = FastAPI(
        title="Placet",
        version=_version(),
        summary="Governance for fine-tunes on EU clouds: gate, approvals, evidence, signed log.",
        responses={"4XX": problem, "5XX": problem},
        lifespan=lifespan,
        docs_url=None,  # Swagger UI would load scripts from a third country
        redoc_url=None,
        generate_unique_id_function=lambda route: (
            f"{str(route.tags[0]).replace(' ', '_') if route.tags else 'operations'}.{route.name}"
        ),
    )
    app.state.installation = installation
    rooms = (
        *(registry, jobs, decisions, waivers, deployments),
        *(expiring, reference, policies, log),
    )
    for router in (room.router for room in rooms):
        app.include_router(router, prefix=_API)
    app.include_router(deployments.public)
    app.include_router(log.published)
    _add_operations(app, installation)
    _add_problems(app, installation)
    _add_limits(app, installation)
    _describe_problems(app)
    return app


def _add_operations(app: FastAPI, installation: Installation) -> None:
    @app.get("/healthz", tags=["operations"], summary="Is the process alive")
    def healthz() -> dict[str, str]:
        """Answer as long as the process can."""
        return {"status": "ok", "version": app.version}

    @app.get("/readyz", tags=["operations"], summary="Can it work")
    def readyz() -> JSONResponse:
        """Say whether database, schema, log and policy are usable; 503 when one is not.

        `rejected` names the last bundle if it was refused, and `refused_packs` says what is wrong
        with the folders of packs: the policy before them stays in force.
        """
        checks = _readiness(installation)
        is_known = checks["policy"] == "ok"
        is_ready = all(value == "ok" for value in checks.values())
        return JSONResponse(
            {
                "status": "ok" if is_ready else "unavailable",
                "checks": checks,
                "rejected": _rejected(installation) if is_known else None,
                "refused_packs": _refused_packs(installation) if is_known else None,
            },
            200 if is_ready else 503,
        )

    @app.get("/v1/me", tags=["operations"], summary="Who am I")
    def me(who: Authenticated) -> dict[str, Any]:
        """Say who the token belongs to and what they may do."""
        return {
            "id": who.id,
            "kind": who.kind,
            "roles": sorted(who.roles),
            "teams": sorted(who.teams),
        }


def _readiness(installation: Installation) -> dict[str, str]:
    checks = {"database": "ok", "schema": "ok", "log": "ok", "policy": "ok"}
    try:
        with installation.database.connect() as connection:
            connection.execute(text("SELECT 1"))
        if not is_current(installation.database):
            checks["schema"] = "run `placet migrate`"
            checks["policy"] = "not known before that"
            return checks
        if installation.ledger.latest() is None:
            checks["log"] = "no checkpoint yet: is a worker running?"
        with installation.transactions.read() as session:
            installation.gate.current(session)
    except Unavailable as error:
        checks["policy"] = error.detail
    except SQLAlchemyError:
        checks["database"] = "not reachable"
        checks["policy"] = "not known without the database"
    except ObjectError as error:
        checks["log"] = str(error)
    return checks


def _rejected(installation: Installation) -> dict[str, Any] | None:
    with installation.transactions.read() as session:
        row = policy_bundles.last_rejection(session)
    if row is None:
        return None
    return {"bundle": row.bundle_digest, "reason_code": row.reason_code, "at": row.created_at}


def _refused_packs(installation: Installation) -> dict[str, str] | None:
    refused = installation.refused_packs()
    return None if refused is None else {"reason_code": refused.code, "detail": refused.detail}


def _add_problems(app: FastAPI, installation: Installation) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        problem = _problem_of(error)
        if isinstance(error, RequestValidationError):
            _warn_of_overreach(installation, request, error)
        if problem.audited:
            try:
                _record_refusal(installation, request, problem)
            except Unavailable as full:  # what cannot be recorded is not answered either
                problem = full
        response = problem_response(problem, str(request.state.request_id))
        if problem.status == 405 and isinstance(error, HTTPException):
            response.headers.update(error.headers or {})  # RFC 9110: 405 names what is allowed
        return response

    kinds: tuple[type[Exception], ...] = (
        *(Problem, RequestValidationError, HTTPException, StaleDataError, IntegrityError),
        *(DataError, OperationalError, ObjectError, EngineError),
    )
    for kind in kinds:
        app.add_exception_handler(kind, answer)


def _warn_of_overreach(
    installation: Installation, request: Request, error: RequestValidationError
) -> None:
    """Tell the operator who sent what only the service decides; names of members, no values."""
    sent = {
        str(item["loc"][-1]).lower() for item in error.errors() if item["type"] == "extra_forbidden"
    }
    if members := sorted(sent & DECIDED_HERE):
        who = _who(installation, request)
        logger.warning(
            "request.overreach",
            members=members,
            principal=None if who is None else who.id,
            route=_route_of(request),
        )


def _is_taken(error: IntegrityError) -> bool:
    """Say whether a unique key was taken; PostgreSQL says 23505, SQLite only says it in words."""
    state = getattr(error.orig, "sqlstate", None)
    return state == "23505" or "UNIQUE constraint failed" in str(error.orig)


def _problem_of(error: Exception) -> Problem:  # noqa: PLR0911 — one answer for each kind
    match error:
        case StaleDataError():
            return Conflict("somebody changed it at the same moment; read it again")
        case IntegrityError() if _is_taken(error):
            return Conflict("another request with the same key came first; send yours again")
        case IntegrityError():
            # A guard of the database held: our bug, and an alarm, never the caller's race.
            logger.critical("database.guard_held", error=str(error.orig)[:200])
            return Problem("our bug; tell the operator the instance id")
        case DataError():
            logger.info("request.unstorable", error=type(error).__name__)
            return BadRequest("a value holds a NUL or too large a number; correct it")
        case OperationalError():
            logger.warning("database.unavailable", error=type(error).__name__)
            return Unavailable("the database is busy or away; try again")
        case ObjectError():
            return Unavailable(str(error))
        case EngineError():
            return EngineUnavailable(f"the engine does not answer ({error}); try again")
        case _:
            return as_problem(error)


def _record_refusal(installation: Installation, request: Request, problem: Problem) -> None:
    """Leave an entry of a refusal that matters; the transaction that raised it rolled back."""
    who = _who(installation, request)
    with installation.transactions.write() as tx:
        tx.record(
            EventKind.REQUEST_REFUSED,
            f"request:{request.state.request_id}",
            actor=SYSTEM if who is None else who.actor,
            data={"problem": problem.slug, "route": _route_of(request)},
            outcome="denied",
        )


def _route_of(request: Request) -> str:
    path = getattr(request.scope.get("route"), "path", "/unknown")
    if request.url.path.startswith(f"{_API}/") and not path.startswith(f"{_API}/"):
        path = _API + path  # a route knows its path within its router only
    return f"{request.method} {path}"


def _who(installation: Installation, request: Request) -> Caller | None:
    _, _, secret = request.headers.get("authorization", "").partition(" ")
    try:
        with installation.transactions.read() as session:
            return authenticate(session, secret.strip(), installation.clock)
    except Problem:
        return None


def _add_limits(app: FastAPI, installation: Installation) -> None:
    @app.middleware("http")
    async def limit(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        request.state.request_id = new_id(Prefix.ENTRY).replace("evt_", "req_")
        length = request.headers.get("content-length", "0")
        if (
            not length.isascii()
            or not length.isdigit()
            or int(length) > installation.max_body_bytes
        ):
            problem = PayloadTooLarge(
                f"at most {installation.max_body_bytes} bytes, got {length[:20]}"
            )
            return problem_response(problem, request.state.request_id)
        with structlog.contextvars.bound_contextvars(request_id=request.state.request_id):
            try:
                response = await call_next(request)
            except Exception:  # a composition root: our bug becomes a 500, logged
                logger.exception("request.failed", path=request.url.path)
                problem_500 = Problem("our bug; tell the operator the instance id")
                response = problem_response(problem_500, request.state.request_id)
        response.headers["Request-Id"] = request.state.request_id
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response


def _describe_problems(app: FastAPI) -> None:
    original = app.openapi

    def openapi() -> dict[str, Any]:
        schema = original()
        schema.setdefault("components", {}).setdefault("schemas", {})["Problem"] = _PROBLEM_SCHEMA
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _version() -> str:
    try:
        return version("placet")
    except PackageNotFoundError:
        return "0+source"
