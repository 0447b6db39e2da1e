"""The README's head is what huggingface_hub reads, offline."""

import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.repocard_data import eval_results_to_model_index

from model_cards import card, document, hub, render
from model_cards.evidence import Claim, Declared, Evidence, Measured

BY = Declared(by="prn_1", on="2026-11-30")
RUN = Measured(at="2026-11-30T00:00:00Z", run="run_1")


def head(given):
    claims = {name: Claim(value, BY) for name, value in given.items()}
    return hub.metadata(document.read(card.build(Evidence.of(claims))))


def test_head_round_trips_through_huggingface_hub(card_bytes):
    readme = render.card_markdown(card_bytes)
    read = ModelCard(readme)
    assert isinstance(read.data, ModelCardData)
    assert read.data.license == "apache-2.0"
    assert read.data.base_model == "HuggingFaceTB/SmolLM2-135M"
    assert read.data.library_name == "peft"
    assert read.data.pipeline_tag == "text-generation"
    assert read.data.language == ["de", "en", "es", "fr", "pl", "pt"]
    assert read.data.datasets == ["ds_01k2demo00000000000000000"]
    assert read.data.tags == ["placet", "lora"]
    assert read.data.to_dict()["base_model_relation"] == "adapter"
    assert read.data.to_dict() == hub.metadata(document.read(card_bytes))
    assert ModelCard(str(read)).data.to_dict() == read.data.to_dict()


def test_figures_become_eval_results(card_bytes):
    data = ModelCard(render.card_markdown(card_bytes)).data
    assert data.model_name == "Help desk, six languages"
    assert all(isinstance(result, EvalResult) for result in data.eval_results)
    assert {(found.metric_type, found.metric_value) for found in data.eval_results} == {
        ("loss", 1.931),
        ("perplexity", 6.8964),
    }
    index = eval_results_to_model_index(data.model_name, data.eval_results)
    assert index == data.to_dict()["model-index"]


def test_body_follows_the_head(card_bytes):
    body = ModelCard(render.card_markdown(card_bytes)).text
    assert body.lstrip().startswith("# Help desk, six languages")


def test_what_the_hub_cannot_read_is_left_out_not_guessed():
    found = head(
        {
            "base.id": "/srv/models/base",
            "data.id": "x/y/z",
            "data.languages": ["fr-FR", "en"],
            "model.licence": "House licence, see intranet",
            "training.method": "lora",
        }
    )
    assert "base_model" not in found
    assert "datasets" not in found
    assert found["language"] == ["en"]
    assert (found["license"], found["license_name"]) == ("other", "House licence, see intranet")
    assert "model-index" not in found


def test_nothing_known_gives_a_head_that_still_reads():
    readme = render.card_markdown(card.build(Evidence.of({})))
    assert ModelCard(readme).data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["placet"],
    }


@pytest.mark.parametrize(
    ("method", "library", "relation"),
    [
        ("lora", "peft", "adapter"),
        ("QLoRA", "peft", "adapter"),
        ("full", "transformers", "finetune"),
    ],
)
def test_relation_follows_the_method(method, library, relation):
    found = head({"training.method": method, "base.id": "a/b"})
    assert (found["library_name"], found["base_model_relation"]) == (library, relation)


@pytest.mark.parametrize(
    "hostile",
    [
        "---",
        "x --- y",
        "no",
        "null",
        "!!python/object/apply:os.system [id]",
        "*alias",
        "&anchor",
        "a: b",
        "# comment",
        "{{ 7*7 }}",
        "'\"",
        "\u202egnp.exe",
        "license: mit",
        "- - -",
        "\x1b[31m",
        "%TAG ! x",
        "x" * 400 + " ---",
    ],
)
def test_hostile_text_stays_one_string_in_the_head(hostile):
    claims = {
        "model.name": Claim(hostile, BY),
        "model.licence": Claim(hostile, BY),
        "data.id": Claim("ds_1", BY),
        "evaluation.loss_after": Claim("1.5", RUN),
    }
    readme = render.card_markdown(card.build(Evidence.of(claims)))
    data = ModelCard(readme).data.to_dict()
    block = readme.removeprefix("---\n").split("\n---\n")[0]
    assert yaml.safe_load(block) == data
    assert set(data) == {
        "license",
        "license_name",
        "datasets",
        "library_name",
        "pipeline_tag",
        "tags",
        "model-index",
    }
    assert isinstance(data["license_name"], str)
    assert data["model-index"][0]["name"] == data["license_name"]
