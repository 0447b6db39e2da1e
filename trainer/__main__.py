"""The trainer's commands; standard output holds the answer and nothing else.

    python -I -m trainer plan  --spec SPEC [--device cpu] [--json]
    python -I -m trainer train --spec SPEC --permit PERMIT.jwt --issuer-key KEY.pem --run-id RUN
                               --output URI --scratch DIR [--threads N]
    python -I -m trainer export --base DIR --adapter DIR --out DIR [--dtype bf16|fp32]
    python -I -m trainer inspect-base DIR
    python -I -m trainer convert-gguf GGUF OUT [--sha256 HEX]

Exit codes: 0 done, 1 failed, 2 refused or misused, 75 interrupted and resumable.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

from trainer.contract import ContractError, digest
from trainer.intake import inspect_directory
from trainer.refusal import Exit, RefusedError
from trainer.run import Request, train
from trainer.signals import Stop, StopRequestedError


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _be_quiet_and_offline()
    arguments = _parser().parse_args(argv)
    try:
        code: Exit = arguments.act(arguments)
    except (RefusedError, ContractError) as refusal:
        return _say(Exit.REFUSED, f"refused: {refusal}")
    except StopRequestedError:
        return _say(Exit.INTERRUPTED, "interrupted: nothing was kept, start it again")
    except OSError as cause:
        return _say(Exit.FAILED, f"failed: {cause}")
    return code


def _be_quiet_and_offline() -> None:
    """Keep libraries off the network and off our output; must precede their import."""
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",
    }
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # A spinning OpenMP thread steals the core it waits for: on a shared machine, four times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainer", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("plan", help="tell what a run would do and cost; needs no GPU")
    command.add_argument("--spec", type=Path, required=True)
    command.add_argument("--device", default="cpu", help="cpu, l4, l40s, a100, h100 or h200")
    command.add_argument("--json", action="store_true", help="JSON instead of lines")
    command.set_defaults(act=_plan)

    command = commands.add_parser("train", help="do one permitted run, or go on with it")
    for name in ("spec", "permit", "issuer-key"):
        command.add_argument(f"--{name}", type=Path, required=True)
    command.add_argument("--run-id", required=True)
    command.add_argument("--output", required=True, metavar="URI")
    command.add_argument("--scratch", type=Path, required=True)
    command.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    command.set_defaults(act=_train)

    command = commands.add_parser("export", help="merge an adapter into its base, and compare")
    for name in ("base", "adapter", "out"):
        command.add_argument(f"--{name}", type=Path, required=True)
    command.add_argument("--dtype", choices=("bf16", "fp32"), help="default: as the base's files")
    command.set_defaults(act=_export)

    command = commands.add_parser("inspect-base", help="print a model's files and their digest")
    command.add_argument("directory", type=Path)
    command.set_defaults(act=_inspect_base)

    command = commands.add_parser("convert-gguf", help="make a base model from a GGUF file")
    command.add_argument("gguf", type=Path)
    command.add_argument("out", type=Path)
    command.add_argument("--sha256", help="hex digest that the GGUF file must have")
    command.set_defaults(act=_convert_gguf)
    return parser


def _plan(arguments: argparse.Namespace) -> Exit:
    from trainer.plan import DEVICES, plan, render_text  # noqa: PLC0415 — loads transformers

    if arguments.device not in DEVICES:
        raise ContractError(f"expected --device to be one of {', '.join(DEVICES)}")
    stop = Stop()
    stop.install()
    with tempfile.TemporaryDirectory() as scratch:
        document = plan(
            arguments.spec.read_bytes(),
            device=arguments.device,
            scratch=Path(scratch),
            poll=stop.poll,
        )
    sys.stdout.write(
        json.dumps(document, indent=2) + "\n" if arguments.json else render_text(document)
    )
    return Exit.DONE


def _train(arguments: argparse.Namespace) -> Exit:
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    return train(
        Request(
            spec=arguments.spec,
            permit=arguments.permit,
            issuer_key=arguments.issuer_key,
            run_id=arguments.run_id,
            output=arguments.output,
            scratch=arguments.scratch,
            threads=max(1, arguments.threads),
        )
    )


def _export(arguments: argparse.Namespace) -> Exit:
    from trainer.export import export_merged, stored_dtype  # noqa: PLC0415 — loads torch

    report = export_merged(
        arguments.base,
        arguments.adapter,
        arguments.out,
        dtype=arguments.dtype or stored_dtype(arguments.base),
    )
    sys.stdout.write(json.dumps(report.to_json(), sort_keys=True) + "\n")
    return Exit.DONE


def _inspect_base(arguments: argparse.Namespace) -> Exit:
    stop = Stop()
    stop.install()
    manifest = inspect_directory(arguments.directory.resolve().as_uri(), stop.poll).to_bytes()
    answer = {"digest": digest(manifest), "manifest": json.loads(manifest)}
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    return Exit.DONE


def _convert_gguf(arguments: argparse.Namespace) -> Exit:
    from trainer.base import convert_gguf  # noqa: PLC0415 — loads torch

    convert_gguf(arguments.gguf, arguments.out, sha256=arguments.sha256)
    return _inspect_base(argparse.Namespace(directory=arguments.out))


def _say(code: Exit, line: str) -> Exit:
    sys.stderr.write(" ".join(line.split()) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
