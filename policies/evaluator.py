"""JSON Schema engines behind one seam, so that either gives the same bytes.

An engine reports *where* and *which keyword*; its wording is dropped, because engines word the
same failure differently. `jsonschema` is the reference and always there; `jsonschema-rs` is used
when it is installed. Neither may fetch a schema: their resolvers only refuse.

Source: JSON Schema 2020-12 (core and validation, 2022-06-16).
"""

import functools
import importlib.util
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

import jsonschema
import referencing

Failure = tuple[str, str]
"""(JSON pointer into the facts, JSON Schema keyword), for example ("/job/kind", "enum")."""

# `minContains` and `contains` fail for the same reason; engines differ in which name they give.
_ONE_NAME = {"minContains": "contains"}


class EvaluationError(ValueError):
    """An engine could not compile or evaluate a schema; the gate takes that as an error outcome."""


class Checker(Protocol):
    """One compiled schema."""

    def is_valid(self, instance: Any) -> bool:
        """Say whether the instance satisfies the schema."""
        ...

    def failures(self, instance: Any) -> list[Failure]:
        """List every failure, sorted, each once; empty exactly when `is_valid`."""
        ...


class Evaluator(Protocol):
    """Compiles schemas."""

    name: str

    def __hash__(self) -> int:
        """Evaluators key the caches of compiled schemas, by identity."""
        ...

    def compile(self, schema: Mapping[str, Any]) -> Checker:
        """Compile a schema of the linted subset.

        Raises:
            EvaluationError: the engine refuses the schema.
        """
        ...


def _pointer(path: Any) -> str:
    return "".join(f"/{part}" for part in path)


def _keyword(schema_path: Any) -> str:
    names = [part for part in schema_path if isinstance(part, str)]
    last = names[-1] if names else ""
    return _ONE_NAME.get(last, last)


class _PythonChecker:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        registry: referencing.Registry[Any] = referencing.Registry()  # resolves nothing
        self._validator = jsonschema.Draft202012Validator(schema, registry=registry)

    def is_valid(self, instance: Any) -> bool:
        try:
            return bool(self._validator.is_valid(instance))
        except (
            referencing.exceptions.Unresolvable,
            jsonschema.exceptions.ValidationError,
        ) as cause:
            raise EvaluationError(f"cannot evaluate: {type(cause).__name__}") from cause

    def failures(self, instance: Any) -> list[Failure]:
        try:
            return sorted(
                {
                    (_pointer(error.absolute_path), _keyword(error.absolute_schema_path))
                    for error in self._validator.iter_errors(instance)
                }
            )
        except referencing.exceptions.Unresolvable as cause:
            raise EvaluationError(f"cannot evaluate: {type(cause).__name__}") from cause


class PythonEvaluator:
    """The reference: the `jsonschema` package, pure Python."""

    name = "jsonschema"

    def compile(self, schema: Mapping[str, Any]) -> Checker:
        """Compile with jsonschema; see `Evaluator.compile`."""
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.exceptions.SchemaError as cause:
            raise EvaluationError(f"not a schema at {_pointer(cause.absolute_path)}") from cause
        return _PythonChecker(schema)


class _RustChecker:
    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def is_valid(self, instance: Any) -> bool:
        return bool(self._validator.is_valid(instance))

    def failures(self, instance: Any) -> list[Failure]:
        return sorted(
            {
                (_pointer(error.instance_path), _keyword(error.schema_path))
                for error in self._validator.iter_errors(instance)
            }
        )


def _never_fetch(uri: str) -> NoReturn:
    raise EvaluationError(f"schema reference `{uri}` is refused: write the schema out")


class RustEvaluator:
    """The fast one: the `jsonschema-rs` package."""

    name = "jsonschema-rs"

    def __init__(self) -> None:
        import jsonschema_rs  # noqa: PLC0415 — optional: only here is it needed

        self._engine = jsonschema_rs

    def compile(self, schema: Mapping[str, Any]) -> Checker:
        """Compile with jsonschema-rs; see `Evaluator.compile`."""
        try:
            validator = self._engine.Draft202012Validator(dict(schema), retriever=_never_fetch)
        except (ValueError, TypeError) as cause:
            raise EvaluationError("not a schema, or it has a reference") from cause
        return _RustChecker(validator)


@functools.cache
def default_evaluator() -> Evaluator:
    """Return jsonschema-rs where it is installed, else jsonschema; their output is the same."""
    return RustEvaluator() if importlib.util.find_spec("jsonschema_rs") else PythonEvaluator()
