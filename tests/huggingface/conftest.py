"""A data-bin with a tokenizer, exports of every architecture, and environments that hold transformers and not this package."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def prepared(world):
    """The toy text with a sentencepiece model, as ``fairseq-posenc prepare`` writes it."""
    return world.prepared


VERSIONS = [
    pytest.param("4", marks=pytest.mark.slow, id="transformers4"),
    pytest.param("5", marks=pytest.mark.thorough, id="transformers5"),
]


@pytest.fixture(scope="session", params=VERSIONS)
def isolated_python(request):
    """The interpreter of an environment that has PyTorch and one major release of transformers, and not this package."""
    path = Path(os.environ.get(f"FAIRSEQ_POSENC_HF{request.param}") or ROOT / f".venv-hf{request.param}", "bin", "python")
    if not path.exists():
        pytest.skip(f"no {path}: bash scripts/setup_hf_venvs.sh makes it")
    return path
