"""What fairseq and Hydra find under an architecture's name."""

import hydra
from fairseq.models import ARCH_MODEL_NAME_REGISTRY
from hydra.core.config_store import ConfigStore

from fairseq_posenc.core.families import NEUTRAL, architectures


def options(name):
    return ConfigStore.instance().load(f"model/{name}.yaml").node


def test_hydra_finds_the_options_of_the_model_under_every_name():
    names = [name for name, known in architectures().items() if known.scheme in (NEUTRAL, "m4_reset")]
    for name in names:
        assert options(name) == {**options(ARCH_MODEL_NAME_REGISTRY[name]), "_name": name}


def test_hydra_composes_the_options_of_the_name_that_it_is_given():
    with hydra.initialize_config_module("fairseq.config", version_base="1.3"):
        names = [hydra.compose("config", [f"model={name}"]).model._name for name in ("roberta_tisa_tiny", "roberta_t5")]
    assert names == ["roberta_tisa_tiny", "roberta_t5"]


def test_what_one_job_changes_another_does_not_see():
    options("roberta_tisa").encoder_layers = 3
    assert options("roberta_tisa").encoder_layers is options("roberta_t5").encoder_layers is None
