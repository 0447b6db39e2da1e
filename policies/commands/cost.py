"""`placet cost estimate` and `placet cost compare`: offline, from dated rows.

Both print a table, then the rows that nobody verified with their days; `--json` prints the whole
document (`policies.quote`). Own prices replace shipped rows: `--prices FILE` takes a table of
reference data as a file (`table`, `defaults`, `rows`), `--set` one number.

Exit codes: 0 answered, also when the answer is to see a solutions architect; 2 refused.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from policies.commands.cost_text import comparison_lines, estimate_lines, unverified_lines
from policies.commands.grammar import reason
from policies.cost import CostError, own_rows, set_value
from policies.load import REFERENCE, load_reference
from policies.quote import comparison_document, estimate_document
from policies.reference import Reference, ReferenceDataError
from policies.sizing import Asked, config_shape, model_shape, number, said_in
from policies.strict import parse_json, parse_yaml
from policies.workload import METHODS, Shape

_REFUSED = (CostError, ReferenceDataError, OSError)
_RENTED, _OWNED = "ovhcloud/h100-1-gpu", "own-site/h100-sxm"
_HOURS = "500,1000,2000,4000,6000"
_ESTIMATE_EXAMPLES = """\
examples:
  placet cost estimate --params 8B --method lora --tokens 20M
  placet cost estimate job.yaml --model mistral-7b --tokens 5M --flavor l40s-1-gpu
  placet cost estimate --params 70B --method qlora --tokens 50M --provider ovhcloud --json
  placet cost estimate --params 8B --tokens 20M --set prices.h100-1-gpu=2500000
"""
_COMPARE_EXAMPLES = """\
examples:
  placet cost compare
  placet cost compare --gpu-hours 300,3000 --rent scaleway/H100-1-80G
  placet cost compare --set hosting.power_watts=9000 --set hosting.server_price_cents=24000000
  placet cost compare --prices our-offers.yaml --json
"""


def add_commands(subparsers: Any) -> argparse.ArgumentParser:
    """Add `cost` with its commands to the subparsers of an argparse parser; return its parser.

    The parsers' default `handler` is `run`: (options) -> exit status.
    """
    text = "estimate a fine-tune; compare owning with renting"
    parser: argparse.ArgumentParser = subparsers.add_parser("cost", help=text)
    add_inner(parser.add_subparsers(required=True, metavar="COMMAND", title="commands"))
    return parser


def add_inner(inner: Any) -> None:
    """Add `estimate` and `compare`."""
    parser = _command(
        inner, "estimate", "say what a fine-tune needs and costs, by flavor", _ESTIMATE_EXAMPLES
    )
    parser.set_defaults(handler=run, answer=_estimate)
    _add_question(parser)
    parser = _command(
        inner, "compare", "compare a server of your own with renting", _COMPARE_EXAMPLES
    )
    parser.set_defaults(handler=run, answer=_compare)
    for name, place in (("--rent", _RENTED), ("--own", _OWNED)):
        parser.add_argument(
            name, default=place, metavar="PROVIDER/FLAVOR", help=f"(default: {place})"
        )
    parser.add_argument(
        "--gpu-hours", default=_HOURS, metavar="N,…", help=f"a month (default: {_HOURS})"
    )


def _add_question(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("job", nargs="?", type=Path, metavar="JOB.yaml", help="job document or facts")
    add("--params", metavar="N", help="parameters of the base model, as 8B")
    add("--model", metavar="ID", help="a row of table `models`")
    add("--config", type=Path, help="the base model's own config.json")
    add("--method", choices=METHODS, help="(default: lora)")
    add("--tokens", metavar="N", help="tokens of one pass over the data, as 20M")
    add("--epochs", metavar="N", help="passes over the data (default: 1)")
    add("--rank", metavar="N", help="of the adapters (default: 16)")
    add("--max-tokens", metavar="N", help="longest row (default: 4096)")
    add("--precision", choices=("bf16", "fp32"), help="(default: bf16)")
    add("--checkpointing", action=argparse.BooleanOptionalAction, default=None,
        help="recompute activations (default: where it fits only so)")  # fmt: skip
    add("--provider", action="append", help="only this one; may be repeated")
    add("--flavor", help="only this one")
    add("--gpus", metavar="N", help="(default: as few as fit)")
    add("--from-scratch", action="store_true", help="no base model is tuned")


def _command(inner: Any, name: str, text: str, examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = inner.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--prices", type=Path, action="append", default=[], metavar="FILE.yaml",
                        help="a table that replaces or adds rows; may be repeated")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.ID=N",
                        help="one number, as hosting.power_watts=9000")  # fmt: skip
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="folder of tables")
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for machines"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Run one parsed command and return the exit status."""
    try:
        answer, lines = options.answer(options, _reference(options))
    except _REFUSED as cause:
        sys.stderr.write(f"placet cost: {reason(cause)}\n")
        return 2
    if getattr(options, "json", False):
        sys.stdout.write(json.dumps(answer, ensure_ascii=False, indent=1) + "\n")
    else:
        sys.stdout.write("\n".join([*lines, *unverified_lines(answer)]) + "\n")
    return 0


def _reference(options: argparse.Namespace) -> Reference:
    found = load_reference(options.reference)
    for path in options.prices:
        content = _document(path)
        rows, defaults = content.get("rows"), content.get("defaults", {})
        is_table = (
            set(content) <= {"table", "defaults", "rows"}
            and isinstance(content.get("table"), str)
            and isinstance(defaults, dict)
            and isinstance(rows, list)
            and all(isinstance(row, dict) for row in rows)
        )
        if not is_table:
            raise CostError(f"{path.name}: expected `table`, `defaults` and a list of `rows`")
        laid = [{**defaults, **row} for row in rows or ()]
        found = own_rows(found, str(content["table"]), laid)
    for assignment in options.set:
        found = set_value(found, assignment)
    return found


def _document(path: Path) -> Mapping[str, Any]:
    data = path.read_bytes()
    try:
        content: Any = parse_json(data) if path.suffix == ".json" else parse_yaml(data)
    except ValueError as cause:  # the strict reader's own, and an integer too long to convert
        raise CostError(f"{path.name}: {cause}") from cause
    if not isinstance(content, dict):
        raise CostError(f"{path.name}: expected an object")
    return content


def _estimate(
    options: argparse.Namespace, reference: Reference
) -> tuple[dict[str, Any], list[str]]:
    said = {} if options.job is None else said_in(_document(options.job))
    assumed: list[str] = []
    asked = _asked(options, said, reference, assumed)
    answer = estimate_document(asked, reference, assumed)
    return answer, estimate_lines(answer)


def _asked(
    options: argparse.Namespace, said: dict[str, Any], reference: Reference, assumed: list[str]
) -> Asked:
    def count(name: str, member: str, default: int | None = None) -> int | None:
        option, given = f"--{name.replace('_', '-')}", getattr(options, name)
        if given is not None:
            return number(given, option)
        if member not in said and default is not None:
            assumed.append(f"{option} {default}")
        found: int | None = said.get(member, default)
        return found

    tokens = count("tokens", "tokens")
    if tokens is None:
        raise CostError("how much data? give --tokens 20M")
    method = options.method or said.get("method", "lora")
    rank = count("rank", "rank", None if method == "full" else 16)
    provider = options.provider or [said[name] for name in ("provider",) if name in said]
    flavor = options.flavor or said.get("flavor")
    if options.flavor is None and said.get("on_cpu"):
        assumed.append(f"a GPU flavor, not `{flavor}`")
        provider, flavor = options.provider or [], None
    return Asked(
        shape=_shape(options, said, reference, assumed),
        method=method,
        rank=rank or 0,
        row_tokens=count("max_tokens", "row_tokens", 4096) or 0,
        precision=options.precision or said.get("precision", "bf16"),
        tokens=_within(tokens * (count("epochs", "epochs") or 1)),
        checkpointing=options.checkpointing
        if options.checkpointing is not None
        else said.get("checkpointing"),
        providers=tuple(provider),
        flavor=flavor,
        gpus=count("gpus", "gpus"),
        from_scratch=options.from_scratch or said.get("from_scratch", False),
        max_minutes=said.get("max_minutes"),
        budget_cents=said.get("budget_cents"),
    )


def _within(tokens: int) -> int:
    return number(str(tokens), "tokens of all epochs") if tokens else 0


def _shape(
    options: argparse.Namespace, said: dict[str, Any], reference: Reference, assumed: list[str]
) -> Shape:
    parameters = None if options.params is None else number(options.params, "--params")
    if options.config is not None:
        return config_shape(options.config.read_bytes(), parameters)
    if options.model is None and parameters is None and "shape" in said:
        shape: Shape = said["shape"]
        return shape
    found, name = model_shape(reference, model=options.model, parameters=parameters)
    if options.model is None:
        assumed.append(f"the shape of {name}")
    return found


def _compare(options: argparse.Namespace, reference: Reference) -> tuple[dict[str, Any], list[str]]:
    places = []
    for name, text in (("--rent", options.rent), ("--own", options.own)):
        provider, slash, flavor = text.partition("/")
        if not slash:
            raise CostError(f"{name}: expected PROVIDER/FLAVOR, got `{text}`")
        places.append((provider, flavor))
    hours = [number(part.strip(), "--gpu-hours") for part in options.gpu_hours.split(",")]
    answer = comparison_document(
        reference, rented=places[0], owned=places[1], gpu_hours=sorted(set(hours))
    )
    return answer, comparison_lines(answer)
