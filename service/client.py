"""A client of the HTTP API `/v1`: what the `placet` command and the demo talk to a service with.

It needs `httpx` and nothing else (`pip install placet[client]`), and imports no other module of
ours:

    with Client("http://127.0.0.1:8080", token="plc_…") as client:
        job = client.post("/v1/jobs", document)
        for event in client.follow(job["id"]):
            print(event["state"])

Every creating request carries an `Idempotency-Key`, so it is safe to repeat; every decision carries
`If-Match` with the version that was read. A problem (RFC 9457) is raised as `ClientError`.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import httpx

DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_S = 60.0
OVER = frozenset({"denied", "refused", "expired", "succeeded", "failed", "cancelled"})
"""States in which nothing more happens to a job."""
_PAGE = 100
_BAD_INPUT = frozenset({400, 404, 405, 413, 415, 422, 428})
# Seconds before each further try of a request that is safe to repeat.
_PAUSES_S = (0.2, 0.6)
_QUIET_S = 120.0
_RECONNECT_S = (0.5, 1.0, 2.0, 4.0)

Document = dict[str, Any]


class ClientError(Exception):
    """The service answered with a problem, or not at all.

    Args:
        problem: the RFC 9457 object: `type`, `title`, `status`, `detail`, maybe `errors`. A service
            that cannot be reached has status 0.
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or "no detail"))
        self.problem = dict(problem)

    @property
    def status(self) -> int:
        """The HTTP status; 0 when no answer came."""
        return int(self.problem.get("status", 0))

    @property
    def slug(self) -> str:
        """The problem's short stable name, for instance `self-approval`."""
        return str(self.problem.get("type", "")).rpartition("/")[2]

    @property
    def is_bad_input(self) -> bool:
        """Whether the request itself must change before it can succeed."""
        return self.status in _BAD_INPUT


class Client:
    """A connection to one service as one principal.

    Args:
        url: the service's address.
        token: a bearer token; empty for the few public pages.
        transport: another way to reach it, for tests.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str = "",
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=TIMEOUT_S, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def get(self, path: str, **query: str | int) -> Document:
        """Read one JSON document.

        Raises:
            ClientError: a problem, or no answer.
        """
        return _json(self._send("GET", path, params=query))

    def get_bytes(self, path: str) -> bytes:
        """Read exact bytes: a record, a card, a log.

        Raises:
            ClientError: a problem, or no answer.
        """
        return self._send("GET", path).content

    def seen(self, path: str) -> tuple[Document, str]:
        """Read a document with its ETag, which `decide`, `cancel` and `retire` want back.

        Raises:
            ClientError: a problem, or no answer.
        """
        answer = self._send("GET", path)
        return _json(answer), answer.headers.get("etag", "")

    def items(self, path: str, **query: str | int) -> Iterator[Document]:
        """Yield the items of a list, page after page.

        Raises:
            ClientError: a problem, or no answer.
        """
        after: dict[str, str | int] = {}
        while True:
            page = self.get(path, limit=_PAGE, **query, **after)
            yield from page["items"]
            if page["next"] is None:
                return
            after = {"after": page["next"]}

    def post(
        self, path: str, body: Mapping[str, Any], *, etag: str | None = None, key: str | None = None
    ) -> Document:
        """Create or change something, once however often it is sent.

        Args:
            path: where.
            body: the JSON document.
            etag: the version that was seen, for decisions.
            key: the `Idempotency-Key`; a new UUID by default.

        Raises:
            ClientError: a problem, or no answer.
        """
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        if etag is not None:
            headers["If-Match"] = etag
        return _json(self._send("POST", path, json=dict(body), headers=headers))

    def decide(self, subject: str, *, outcome: str, reason: str, etag: str) -> Document:
        """Approve (`given`) or refuse (`refused`) a job or a deployment as it was seen.

        Raises:
            ClientError: a problem, or no answer.
        """
        body = {"outcome": outcome, "reason": reason}
        return self.post(f"{path_of(subject)}/approvals", body, etag=etag)

    def preview(self, body: Mapping[str, Any], *, language: str | None = None) -> Document:
        """Say what the gate would decide on a job or a deployment now; nothing is recorded.

        Raises:
            ClientError: a problem, or no answer.
        """
        query = "" if language is None else f"?language={language}"
        return self.post(f"/v1/decisions:preview{query}", body)

    def ask(self, deployment: str, messages: list[Document], *, max_tokens: int) -> httpx.Response:
        """Ask a deployed model; the answer's headers name its transparency record.

        Raises:
            ClientError: a problem, or no answer.
        """
        return self._send(
            "POST",
            f"/v1/deployments/{deployment}/openai/v1/chat/completions",
            json={"messages": messages, "max_tokens": max_tokens},
            timeout=180.0,
        )

    def download(self, path: str, out: Path) -> int:
        """Write a file that the service sends to `out`, whole or not at all; return its size.

        Raises:
            ClientError: a problem, or no answer. OSError: `out` cannot be written.
        """
        staged = out.with_name(out.name + ".part")
        try:
            with self._http.stream("GET", path) as answer, staged.open("wb") as file:
                if answer.is_error:
                    answer.read()
                    raise ClientError(_problem(answer))
                for chunk in answer.iter_bytes():
                    file.write(chunk)
            staged.replace(out)
        except httpx.HTTPError as error:
            raise _silent(self.url, error) from error
        finally:
            staged.unlink(missing_ok=True)
        return out.stat().st_size

    def follow(self, job: str) -> Iterator[Document]:
        """Yield a job's state and progress at every change until it is over.

        The stream is taken up again when the connection breaks.

        Raises:
            ClientError: a problem, or the service stayed away.
        """
        pauses = iter(_RECONNECT_S)
        cut: httpx.HTTPError = httpx.RemoteProtocolError("the stream ended early")
        while True:
            try:
                for event in self._events(f"/v1/jobs/{job}/events"):
                    pauses = iter(_RECONNECT_S)
                    yield event
                    if event["state"] in OVER:
                        return
            except httpx.TransportError as error:
                cut = error
            pause = next(pauses, None)
            if pause is None:
                raise _silent(self.url, cut)
            time.sleep(pause)

    def _events(self, path: str) -> Iterator[Document]:
        """Read server-sent events; blank lines end one, unknown fields are skipped."""
        with self._http.stream("GET", path, timeout=_QUIET_S) as answer:
            if answer.is_error:
                answer.read()
                raise ClientError(_problem(answer))
            data: list[str] = []
            for line in answer.iter_lines():
                name, _, value = line.partition(":")
                if name == "data":
                    data.append(value.removeprefix(" "))
                elif not line and data:
                    yield json.loads("\n".join(data))
                    data = []

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request; one that is safe to repeat is tried again when no answer comes."""
        pauses = iter(_PAUSES_S if _is_repeatable(method, options) else ())
        while True:
            try:
                answer = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                pause = next(pauses, None)
                if pause is None:
                    raise _silent(self.url, error) from error
                time.sleep(pause)
                continue
            if answer.is_error:
                raise ClientError(_problem(answer))
            return answer


def path_of(subject: str) -> str:
    """Say where a job or a deployment is, from its id.

    Raises:
        ClientError: the id is of something else.
    """
    for prefix, collection in (("job_", "jobs"), ("dep_", "deployments")):
        if subject.startswith(prefix):
            return f"/v1/{collection}/{subject}"
    raise ClientError(
        {
            "status": 400,
            "detail": f"`{subject[:60]}` is no id of a job (job_…) or deployment (dep_…)",
        }
    )


def _is_repeatable(method: str, options: Mapping[str, Any]) -> bool:
    return method == "GET" or "Idempotency-Key" in options.get("headers", {})


def _json(answer: httpx.Response) -> Document:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        detail = "the answer is no JSON object; is this address a Placet service?"
        raise ClientError({"status": answer.status_code, "detail": detail})
    return body


def _problem(answer: httpx.Response) -> Document:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"detail": f"HTTP {answer.status_code}; is this address a Placet service?"}
    return {**body, "status": answer.status_code}


def _silent(url: str, error: httpx.HTTPError) -> ClientError:
    detail = f"no answer from {url} ({type(error).__name__}); is `placet serve` running there?"
    return ClientError({"type": "unreachable", "status": 0, "detail": detail})
