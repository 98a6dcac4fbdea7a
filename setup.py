"""Packaging. ``data_files`` holds the start-up hook, which has to lie directly in site-packages."""

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.install_data import install_data

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "fairseq_posenc" / "version.py").read_text(encoding="utf-8"))[1]
README = ROOT / "README.md"


class InstallIntoSitePackages(install_data):
    """Put ``data_files`` beside the package instead of under ``sys.prefix``: ``site`` reads ``.pth`` files only there."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.install_dir = self.get_finalized_command("install").install_purelib


EXTRAS = {
    "deepspeed": ["deepspeed>=0.15"],
    "hf": ["transformers>=4.40", "safetensors"],
    "plots": ["matplotlib"],
    "dev": ["pytest", "hypothesis", "ruff", "pre-commit", "safetensors", "scikit-learn", "scipy"],
}

setup(
    name="fairseq-posenc",
    version=VERSION,
    description="Every positional-encoding scheme for transformers, as a fairseq plugin",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    author="fairseq_posenc contributors",
    license="MIT",
    python_requires=">=3.10",
    packages=find_packages(include=["fairseq_posenc", "fairseq_posenc.*"]),
    data_files=[("", ["startup/_fairseq_posenc_hook.py", "startup/fairseq_posenc_hook.pth"])],
    cmdclass={"install_data": InstallIntoSitePackages},
    install_requires=[
        "torch>=2.4,<2.14",
        "fairseq==0.12.2",
        "numpy>=1.26",
        "sentencepiece",
        "tensorboard",
        "tqdm",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["fairseq-posenc = fairseq_posenc.cli:main"]},
)
