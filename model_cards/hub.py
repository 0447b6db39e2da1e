"""The YAML head of a README on the Hugging Face Hub, from a model card.

    ---
    language:
    - en
    license: apache-2.0
    base_model: HuggingFaceTB/SmolLM2-135M
    base_model_relation: adapter
    library_name: peft
    …
    ---

Only what the Hub can read is written: a base model that is not a Hub id, a language that is not
a code or a licence it does not list is left out or named `other`, never guessed. The figures in
`model-index` are numbers here, as the Hub wants them; the model card keeps the decimal strings.

Source: huggingface_hub 2.4, `repocard_data.ModelCardData` and `EvalResult`; Hub documentation
"Model cards", metadata section (read 2026-11).
"""

import re
from typing import Any, Final

import yaml

from model_cards.document import Document
from model_cards.inert import visible

LICENCES: Final = frozenset({
    "apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0",
    "cc-by-nc-4.0", "eupl-1.1", "eupl-1.2", "gpl-3.0", "agpl-3.0", "lgpl-3.0", "mpl-2.0",
    "openrail", "llama2", "llama3", "llama3.1", "llama3.2", "llama3.3", "gemma",
})  # fmt: skip
METRICS: Final = {
    "evaluation.loss_after": ("loss", "Held-out loss"),
    "evaluation.perplexity_after": ("perplexity", "Held-out perplexity"),
}
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_ADAPTERS: Final = frozenset({"lora", "qlora"})


def front_matter(card: Document) -> str:
    """Return the YAML block of a README, both `---` lines included."""
    text = yaml.safe_dump(metadata(card), sort_keys=False, allow_unicode=True, width=float("inf"))
    return f"---\n{text}---\n"


def metadata(card: Document) -> dict[str, Any]:
    """Return the head as data, in the order it is written; keys without a value are left out."""
    method = _text(card, "training.method").lower()
    base, data = _text(card, "base.id"), _text(card, "data.id")
    adapter = method in _ADAPTERS
    found: dict[str, Any] = {
        "language": [code for code in _texts(card, "data.languages") if _LANGUAGE.fullmatch(code)],
        **_licence(_text(card, "model.licence")),
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "base_model": base if _HUB_ID.fullmatch(base) else None,
        "base_model_relation": ("adapter" if adapter else "finetune") if base else None,
        "datasets": [data] if _HUB_ID.fullmatch(data) else None,
        "tags": ["placet", *([method] if adapter else [])],
        "model-index": _model_index(card, data),
    }
    return {key: value for key, value in found.items() if value}


def _licence(name: str) -> dict[str, str]:
    if name.lower() in LICENCES:
        return {"license": name.lower()}
    return {"license": "other", "license_name": name} if name else {}


def _model_index(card: Document, data: str) -> list[dict[str, Any]] | None:
    name = _text(card, "model.name")
    metrics = [
        {"type": kind, "value": float(_text(card, field)), "name": label}
        for field, (kind, label) in METRICS.items()
        if card.claim(field)
    ]
    if not (name and data and metrics):
        return None
    dataset = {"name": f"{data} (held-out rows)", "type": data}
    task = {"type": "text-generation", "name": "Text generation"}
    return [{"name": name, "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}]


def _text(card: Document, field: str) -> str:
    claim = card.claim(field)
    return visible(str(claim.value)) if claim else ""


def _texts(card: Document, field: str) -> list[str]:
    claim = card.claim(field)
    return [str(part) for part in claim.value] if claim and isinstance(claim.value, list) else []
