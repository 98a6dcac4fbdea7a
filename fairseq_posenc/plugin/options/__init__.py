"""The options of models: flags, Hydra's configuration, and architectures."""

from importlib.util import find_spec

if find_spec("fairseq"):
    import fairseq.models  # first, because the start-up hook imports this package's modules when fairseq is imported
