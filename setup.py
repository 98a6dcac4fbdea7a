"""Packaging. The start-up hook is installed directly in site-packages, which setup.cfg cannot express."""

import re
from pathlib import Path

from setuptools import Command, find_packages, setup
from setuptools.command.build import build

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "fairseq_posenc" / "base" / "version.py").read_text(encoding="utf-8"))[1]
README = ROOT / "README.md"


class build_startup(Command):
    """Copy the start-up hook next to the package, in wheels and editable installs, where ``site`` reads ``.pth`` files."""

    editable_mode = False  # set by setuptools

    def initialize_options(self) -> None:
        self.target = None

    def finalize_options(self) -> None:
        if self.editable_mode:
            self.target = self.get_finalized_command("install").install_purelib
        else:
            self.target = self.get_finalized_command("build").build_lib

    def run(self) -> None:
        self.mkpath(self.target)
        for source in self.get_source_files():
            self.copy_file(source, self.target)

    def get_source_files(self) -> list[str]:
        return sorted(str(path) for path in Path("startup").iterdir() if path.suffix in (".py", ".pth"))

    def get_outputs(self) -> list[str]:
        return [str(Path(self.target, Path(source).name)) for source in self.get_source_files()]

    def get_output_mapping(self) -> dict[str, str]:
        return {}  # copied in either mode, never linked to the source


class build_with_startup(build):
    sub_commands = [*build.sub_commands, ("build_startup", None)]  # noqa: RUF012 - a class attribute of setuptools'


EXTRAS = {
    # What fairseq 0.12.2 needs, in its place: it also requires torchaudio, which it imports for speech only and which often does
    # not load with the installed PyTorch; then transformers cannot be imported either. See README.md.
    "fairseq": ["bitarray", "hydra-core>=1.3,<1.4", "omegaconf>=2.3,<2.4", "regex", "sacrebleu>=1.4.12", "tensorboard"],
    "triton": ["triton>=3.3; sys_platform == 'linux'"],  # which PyTorch for CUDA brings along
    "deepspeed": ["deepspeed>=0.19.8,<0.20"],  # its engine's internals are relied on; see fairseq_posenc/plugin/zero
    "hf": ["transformers>=4.57,<6", "safetensors", "accelerate"],  # the last for its Trainer
    "formats": ["pyarrow>=15", "fsspec"],  # s3://, gs://, hf:// and others need a package of their own, which fsspec names
    "plots": ["matplotlib"],
    "glue": ["scikit-learn", "scipy>=1.15"],
    "compare": ["matplotlib", "scipy>=1.15", "statsmodels"],
    "docs": [  # Material and mkdocstrings need Python 3.11
        "mkdocs>=1.6,<2; python_version >= '3.11'",
        "mkdocs-material>=9.6,<10; python_version >= '3.11'",
        "mkdocstrings[python]>=1; python_version >= '3.11'",
    ],
    # setuptools 70.1 builds wheels by itself; a test of the packaging uses it.
    "dev": [
        "setuptools>=70.1",
        "pytest",
        "pytest-xdist",
        "hypothesis",
        "mypy>=2,<3",
        "torchdiffeq",
        "ruff",
        "pre-commit",
        "codespell[toml]",
        "safetensors",
        "scikit-learn",
        "scipy",
        "statsmodels",
        "onnxscript",
        "onnxruntime",
        "sentence-transformers",
        "datasets",
    ],
}

setup(
    name="fairseq-posenc",
    version=VERSION,
    description="Every positional-encoding scheme for transformers, as a fairseq plugin",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    author="fairseq_posenc contributors",
    license="MIT",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.10,<3.14",
    # So that an editable install is a plain path entry, which a folder that happens to be called fairseq_posenc cannot hide.
    package_dir={"": "."},
    packages=find_packages(include=["fairseq_posenc", "fairseq_posenc.*"]),
    package_data={"fairseq_posenc": ["py.typed"], "fairseq_posenc.plugin.zero": ["presets/*.json"]},
    cmdclass={"build": build_with_startup, "build_startup": build_startup},
    install_requires=[
        "torch>=2.6,<2.14",  # before, weights_only could be made to run code: CVE-2025-32434
        "backports.zstd",
        "numpy>=1.26",
        "protobuf",  # of the models of sentencepiece
        "pydantic>=2.7",
        "PyYAML",
        "sentencepiece",
        "tabulate",
        "tqdm",
        "typing_extensions",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["fairseq-posenc = fairseq_posenc.cli:main"]},
)
