"""Data sets and base models."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from sqlmodel import col, select

from service import registry
from service.api import views
from service.api.http import (
    After,
    Authenticated,
    CreationKey,
    Limit,
    StrictRoute,
    Wired,
    cursor,
    known_answer,
    once,
    page,
)
from service.clock import seconds
from service.dataset_scan import scan_dataset
from service.jobs import manifest_uri
from service.principals import Role
from service.problems import NotFound, field_problem
from service.requests import BaseModelRequest, DatasetRequest
from service.tables import BaseModel, DatasetVersion

router = APIRouter(route_class=StrictRoute)


def _check_not_ours(wired: Wired, uri: str) -> None:
    """Refuse what this installation keeps itself: keys, the log, what other teams' runs wrote."""
    asked = f"{uri.rstrip('/')}/"
    for own in (wired.settings.objects, wired.settings.home.as_uri()):
        if asked.startswith(f"{own}/") or f"{own}/".startswith(asked):
            raise field_problem("/uri", "holds this installation's own data; name another folder")


def _known(
    wired: Wired, who: Authenticated, *, key: str, route: str, request: Any
) -> JSONResponse | None:
    """Answer a repeated request before anything is read again: the objects may be gone by now."""
    with wired.transactions.read() as session:
        return known_answer(session, who, key=key, route=route, request=request)


@router.post("/datasets", tags=["datasets"], status_code=201, summary="Register a dataset version")
def create_dataset(
    body: DatasetRequest, wired: Wired, who: Authenticated, key: CreationKey
) -> JSONResponse:
    """Read and hash every object, look for personal data, and record what was found and declared.

    The country comes from the endpoint that serves the objects, never from a label.
    """
    who.require(Role.SUBMITTER)
    who.require_team(body.team)
    if known := _known(wired, who, key=key, route="POST /v1/datasets", request=body):
        return known
    _check_not_ours(wired, body.uri)
    scan = scan_dataset(
        wired.sources,
        wired.places(),
        uri=body.uri,
        name=body.name,
        licence=body.licence,
        rows_format=body.format,
    )
    manifest = scan.manifest.to_bytes()
    declared = body.model_dump(exclude={"name", "team", "uri", "licence", "categories"})
    with wired.transactions.write() as tx:

        def work() -> tuple[int, dict[str, Any]]:
            row = registry.register_dataset(
                tx,
                who,
                scan=scan,
                team=body.team,
                categories=body.categories,
                declared=declared,
                clock=wired.clock,
            )
            wired.objects.put_if_absent(
                manifest_uri(wired.jobs.manifests, row.manifest_digest), manifest
            )
            return 201, views.dataset(row)

        return once(
            tx,
            who,
            key=key,
            route="POST /v1/datasets",
            request=body,
            now=seconds(wired.clock()),
            work=work,
        )


@router.get("/datasets", tags=["datasets"], summary="List dataset versions")
def list_datasets(
    request: Request,
    response: Response,
    wired: Wired,
    who: Authenticated,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the dataset versions that the caller may see, oldest first."""
    with wired.transactions.read() as session:
        rows = session.exec(
            select(DatasetVersion)
            .where(DatasetVersion.id > cursor(after))
            .order_by(DatasetVersion.id)
        )
        items = []
        for row in rows:
            if who.sees(row.team):
                items.append(views.dataset(row))
            if len(items) > limit:
                break
    return page(request, items, limit=limit, key="id", response=response)


@router.get("/datasets/{dataset_id}", tags=["datasets"], summary="Read a dataset version")
def read_dataset(dataset_id: str, wired: Wired, who: Authenticated) -> dict[str, Any]:
    """Read one dataset version."""
    with wired.transactions.read() as session:
        row = session.get(DatasetVersion, dataset_id)
        if row is None or not who.sees(row.team):
            raise NotFound(f"no dataset version `{dataset_id}` that you may see")
        return views.dataset(row)


@router.post("/base-models", tags=["base models"], status_code=201, summary="Register a base model")
def create_base_model(
    body: BaseModelRequest, wired: Wired, who: Authenticated, key: CreationKey
) -> JSONResponse:
    """Hash every file, count the parameters, and record the declared licence and origin."""
    who.require(Role.SUBMITTER, Role.ADMIN)
    if known := _known(wired, who, key=key, route="POST /v1/base-models", request=body):
        return known
    _check_not_ours(wired, body.uri)
    scan = registry.scan_base_model(wired.sources, wired.places(), uri=body.uri)
    declared = body.model_dump(exclude={"name", "uri"})
    with wired.transactions.write() as tx:
        return once(
            tx,
            who,
            key=key,
            route="POST /v1/base-models",
            request=body,
            now=seconds(wired.clock()),
            work=lambda: (
                201,
                views.base_model(
                    registry.register_base_model(
                        tx, who, scan=scan, name=body.name, declared=declared, clock=wired.clock
                    )
                ),
            ),
        )


@router.get("/base-models", tags=["base models"], summary="List base models")
def list_base_models(
    request: Request,
    response: Response,
    wired: Wired,
    who: Authenticated,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List base models, oldest first."""
    del who  # any authenticated caller may see them
    with wired.transactions.read() as session:
        rows = session.exec(
            select(BaseModel)
            .where(col(BaseModel.id) > cursor(after))
            .order_by(BaseModel.id)
            .limit(limit + 1)
        )
        items = [views.base_model(row) for row in rows]
    return page(request, items, limit=limit, key="id", response=response)


@router.get("/base-models/{base_model_id}", tags=["base models"], summary="Read a base model")
def read_base_model(base_model_id: str, wired: Wired, who: Authenticated) -> dict[str, Any]:
    """Read one base model."""
    del who
    with wired.transactions.read() as session:
        row = session.get(BaseModel, base_model_id)
        if row is None:
            raise NotFound(f"no base model `{base_model_id}`; list them with GET /v1/base-models")
        return views.base_model(row)
