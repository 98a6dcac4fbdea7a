"""The options of models: flags, Hydra's configuration, families and architectures."""
