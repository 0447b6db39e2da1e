"""Every error we answer with. RFC 9457 ``application/problem+json``; one class per problem.

    Problem
     ├ BadRequest 400            ├ Conflict 409             ├ PreconditionRequired 428
     ├ Unauthenticated 401       │  └ IllegalState          ├ PayloadTooLarge 413
     ├ Forbidden 403             ├ PreconditionFailed 412   ├ UnsupportedMediaType 415
     │  └ SelfApproval           ├ Unprocessable 422        ├ EngineUnavailable 502
     ├ NotFound 404              │  └ IdempotencyMismatch   └ Unavailable 503
     └ MethodNotAllowed 405

A *denied* job is not a problem: it is a committed state. `audited` problems leave an entry
``request.refused`` in a transaction of their own, because the one that raised rolled back.
"""

from typing import Any, ClassVar

_BASE = "https://placet.dev/problems/"


class Problem(Exception):  # noqa: N818 — RFC 9457's own word
    """Something the caller can act on.

    Args:
        detail: what is wrong with this request and what to do next, in one sentence or two.
        **members: further members of the problem object, for instance ``errors``.
    """

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal"
    title: ClassVar[str] = "Something went wrong on our side"
    audited: ClassVar[bool] = False

    def __init__(self, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = members

    def to_json(self, instance: str) -> dict[str, Any]:
        """Render the problem object; `instance` is the request's id."""
        return {
            "type": _BASE + self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            **self.members,
        }


class BadRequest(Problem):
    """The request cannot be read."""

    status, slug, title = 400, "bad-request", "The request cannot be read"


class Unauthenticated(Problem):
    """No token, or one that is not valid now."""

    status, slug, title = 401, "unauthenticated", "A valid token is needed"


class Forbidden(Problem):
    """The caller may not do this."""

    status, slug, title = 403, "forbidden", "Not allowed for this principal"
    audited = True


class SelfApproval(Forbidden):
    """The submitter tried to decide on their own request."""

    slug, title = "self-approval", "Nobody decides on their own request"


class NotFound(Problem):
    """No such thing, or not yours to see."""

    status, slug, title = 404, "not-found", "Not found"


class MethodNotAllowed(Problem):
    """The path exists, the method does not."""

    status, slug, title = 405, "method-not-allowed", "Method not allowed"


class Conflict(Problem):
    """The request clashes with what is already there."""

    status, slug, title = 409, "conflict", "Conflict with the present state"


class IllegalState(Conflict):
    """The lifecycle has no such move from the present state."""

    slug, title = "illegal-state", "Not possible in the present state"
    audited = True


class PreconditionFailed(Problem):
    """The caller saw an older version than the present one."""

    status, slug, title = 412, "stale", "It changed since you read it"
    audited = True


class PayloadTooLarge(Problem):
    """The body is over the limit."""

    status, slug, title = 413, "too-large", "The request body is too large"


class UnsupportedMediaType(Problem):
    """The body is not JSON."""

    status, slug, title = 415, "unsupported-media-type", "Send application/json"


class Unprocessable(Problem):
    """Well-formed, but a value is not acceptable; `errors` names each field."""

    status, slug, title = 422, "unprocessable", "Some values are not acceptable"


class IdempotencyMismatch(Unprocessable):
    """The key was used before with another body."""

    slug, title = "idempotency-mismatch", "This Idempotency-Key was used with another body"
    audited = True


class PreconditionRequired(Problem):
    """A conditional header is missing."""

    status, slug, title = 428, "precondition-required", "A conditional header is needed"


class EngineUnavailable(Problem):
    """The endpoint behind us does not answer."""

    status, slug, title = 502, "engine-unavailable", "The engine does not answer"


class Unavailable(Problem):
    """We cannot do this safely now."""

    status, slug, title = 503, "unavailable", "Not available now"


def field_problem(pointer: str, detail: str) -> Unprocessable:
    """Make the problem of one field; `pointer` is a JSON pointer into the body."""
    return Unprocessable(f"`{pointer}`: {detail}", errors=[{"pointer": pointer, "detail": detail}])
