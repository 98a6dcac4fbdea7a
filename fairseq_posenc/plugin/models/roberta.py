"""RoBERTa with any positional encoding: fairseq's model, heads and hub interface around the shared encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderModel
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from fairseq.models.roberta.model import RobertaEncoder
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig
from torch import Tensor, nn

from ...core.families import ALBERT, MODERNBERT, ROBERTA
from ...core.transformer import Encoder, Mask
from ...core.transformer.heads import RobertaHead
from ..checkpoint.stock import from_stock
from ..options.architectures import register_family
from ..options.option_set import ENCODER_OPTIONS, field_errors_as_flags
from .building import AnyLength, PosencModel, encoder_config


class SentenceEncoder(AnyLength, Encoder):
    """The shared encoder with fairseq's interface."""

    @field_errors_as_flags()
    def forward(  # type: ignore[override]
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        decode_masks: bool = False,
        mask: dict[str, Any] | None = None,
    ) -> dict[str, list[Tensor]]:
        """(B, n) -> fairseq's dictionary, whose states are (n, B, D). ``mask`` has the fields of :class:`Mask`."""
        output = super().forward(
            src_tokens,
            inputs_embeds=token_embeddings,
            output_hidden_states=return_all_hiddens,
            decode_masks=decode_masks,
            mask=None if mask is None else Mask(**mask),
        )
        return {
            "encoder_out": [output.last_hidden_state.transpose(0, 1)],
            "encoder_padding_mask": [src_tokens.eq(self.config.padding_idx)],
            "encoder_states": [state.transpose(0, 1) for state in output.hidden_states],
        }


class PosencRobertaEncoder(AnyLength, RobertaEncoder):
    """fairseq's RoBERTa encoder and language-model head, with our encoder between them."""

    def build_encoder(self, args: Any, dictionary: Any, embed_tokens: None) -> SentenceEncoder:
        encoder = SentenceEncoder(encoder_config(args, dictionary))
        encoder.compiles_layers = args.compile
        return encoder

    def build_embedding(self, *sizes: int) -> None:
        """Build none: the encoder has its own."""

    def build_lm_head(self, weight: nn.Parameter | None, **unused: Any) -> RobertaHead:
        """Build the language model's head, whose output projection is ``weight``, the word embeddings, or its own."""
        return RobertaHead(self.sentence_encoder.config, weight)

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        masked_tokens: Tensor | None = None,
        mask: dict[str, Tensor] | None = None,
        read_at: Tensor | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As fairseq's; only the language model's head reads the output of a decoder of masked words.

        Args:
            mask: the fields of :class:`Mask`.
            read_at: int64 of any shape, positions in the batch's rows one after another. Heads get the features there, of that
                shape and D, instead of (B, n, D). Unlike ``masked_tokens``, a mask, this needs no wait for the device.
        """
        predicts = not features_only and isinstance(self.lm_head, RobertaHead)
        options = {"return_all_hiddens": return_all_hiddens, "decode_masks": predicts, "mask": mask}
        output = self.sentence_encoder(src_tokens, **options)
        x = features = output["encoder_out"][0].transpose(0, 1)
        inner = output["encoder_states"] if return_all_hiddens else None
        if read_at is not None:
            x = x.flatten(0, 1).index_select(0, read_at.flatten()).unflatten(0, read_at.shape)
        extra = {"inner_states": inner, "features": features}
        return x if features_only else self.output_layer(x, masked_tokens=masked_tokens), extra


@register_family(ROBERTA)
@register_family(ALBERT)
@register_family(MODERNBERT)
class PosencRobertaModel(PosencModel, RobertaModel):
    """RoBERTa (Liu et al. 2019), and its kin of other options, whose positions are ``--positions EXPRESSION``."""

    option_set = ENCODER_OPTIONS

    def __init__(self, args: DictConfig, encoder: PosencRobertaEncoder) -> None:
        FairseqEncoderModel.__init__(self, encoder)  # RobertaModel's draws all weights again
        self.args, self.classification_heads = args, nn.ModuleDict()

    @staticmethod
    def build_core(args: Any, dictionary: Dictionary) -> Encoder:
        """Build the encoder, freshly initialised; raises FieldError if the options make none."""
        return Encoder(encoder_config(args, dictionary))

    @classmethod
    def build_from_options(cls, args: DictConfig, task: FairseqTask) -> tuple[PosencRobertaModel, Encoder]:
        args.layernorm_embedding = not args.no_layernorm_embedding
        model = cls(args, PosencRobertaEncoder(args, task.source_dictionary))
        return model, model.encoder.sentence_encoder

    def forward(self, src_tokens: Tensor, *args: Any, also_classify: str | None = None, **kwargs: Any) -> tuple[Tensor, dict]:
        """As fairseq's; ``also_classify`` names a classification head whose scores (B, classes) are returned, too.

        They are in the dictionary that comes with the language model's scores, as ``classes``.
        """
        x, extra = super().forward(src_tokens, *args, **kwargs)
        if also_classify is not None:
            extra["classes"] = self.classification_heads[also_classify](extra["features"])
        return x, extra

    @classmethod
    def from_pretrained(
        cls, model_name_or_path: str | Path, checkpoint_file: str = "model.pt", data_name_or_path: str | Path = "."
    ) -> RobertaHubInterface:
        """Return fairseq's hub interface to a checkpoint, with the tokenizer next to its dict.txt.

        Args:
            model_name_or_path: the folder.
            checkpoint_file: the file in it.
            data_name_or_path: the folder of the dictionary and the tokenizer, relative to the first folder if it begins with a
                dot; by default the first folder, or the data-bin of the training if that folder has no dict.txt.

        Raises:
            InputError, OSError: the file is not such a checkpoint, or the vocabulary is not its own.
        """
        from .hub_interface import load_hub_interface  # rarely needed

        folder, data_name_or_path = Path(model_name_or_path), str(data_name_or_path)
        data = folder / data_name_or_path if data_name_or_path.startswith(".") else Path(data_name_or_path)
        anywhere = data_name_or_path == "." and not (data / "dict.txt").exists()
        return load_hub_interface(folder / checkpoint_file, None if anywhere else data)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        ours = from_stock(state_dict, self.encoder.dictionary.pad())
        state_dict.clear()
        state_dict.update(ours)
        super().upgrade_state_dict_named(state_dict, name)
