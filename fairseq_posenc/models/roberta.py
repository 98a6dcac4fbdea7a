"""RoBERTa with any positional encoding: fairseq's model, heads and hub interface around the shared encoder."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import RobertaEncoder, RobertaLMHead
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn

from ..errors import Refused
from ..families import ROBERTA
from ..transformer import Encoder, Mask
from .architectures import register_family
from .config import ENCODER_OPTIONS, naming_flags
from .options import UNLIMITED, build_encoder, complete, encoder_config, record
from .stock import from_stock, let_stock_load_ours
from .summary import summary

if TYPE_CHECKING:
    from fairseq.models.roberta.hub_interface import RobertaHubInterface

logger = logging.getLogger(__name__)


class SentenceEncoder(Encoder):
    """The shared encoder as fairseq calls it."""

    @naming_flags()
    def forward(  # type: ignore[override]
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        decode_masks: bool = False,
        mask: dict[str, Tensor] | None = None,
    ) -> dict[str, list[Tensor]]:
        """(B, n) -> fairseq's dictionary, whose states are (n, B, D). ``mask`` has the fields of :class:`Mask`."""
        options = {"embeddings": token_embeddings, "with_hidden": return_all_hiddens, "decode_masks": decode_masks}
        output = super().forward(src_tokens, mask=None if mask is None else Mask(**mask), **options)
        return {
            "encoder_out": [output.last.transpose(0, 1)],
            "encoder_padding_mask": [src_tokens.eq(self.config.padding_idx)],
            "encoder_states": [state.transpose(0, 1) for state in output.hidden],
        }


class PosencRobertaEncoder(RobertaEncoder):
    """fairseq's RoBERTa encoder and language-model head, with our encoder between them."""

    def build_encoder(self, args: Any, dictionary: Any, embed_tokens: nn.Embedding) -> SentenceEncoder:
        encoder = SentenceEncoder(encoder_config(args, dictionary), embed_tokens)
        encoder.compiles_layers = args.compile
        return encoder

    def build_embedding(self, vocab_size: int, embedding_dim: int, padding_idx: int) -> nn.Embedding:
        return super().build_embedding(vocab_size, self.args.embedding_size or embedding_dim, padding_idx)

    def build_lm_head(self, embed_dim: int, output_dim: int, activation_fn: str, weight: Tensor | None) -> RobertaLMHead:
        """Its inner layer is as wide as the word embeddings, which it shares."""
        width = self.args.embedding_size or embed_dim
        head = super().build_lm_head(width, output_dim, activation_fn, weight)
        if width != embed_dim:
            head.dense = nn.Linear(embed_dim, width)
        head.layer_norm.eps = self.args.layer_norm_eps
        return head

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
        """As fairseq's; the language model's head alone reads what a decoder of masked words gives.

        Args:
            mask: what the loader knows of the batch; see :class:`Mask`.
            read_at: any shape of int64, positions in the rows of the batch one after another. Heads get the features there, of
                that shape and D, in place of (B, n, D). Other than ``masked_tokens``, a mask, no device has to be waited for.
        """
        predicts = not features_only and isinstance(self.lm_head, RobertaLMHead)
        options = {"return_all_hiddens": return_all_hiddens, "decode_masks": predicts, "mask": mask}
        found = self.sentence_encoder(src_tokens, **options)
        x = features = found["encoder_out"][0].transpose(0, 1)
        inner = found["encoder_states"] if return_all_hiddens else None
        if read_at is not None:
            x = x.flatten(0, 1).index_select(0, read_at.flatten()).unflatten(0, read_at.shape)
        extra = {"inner_states": inner, "features": features}
        return x if features_only else self.output_layer(x, masked_tokens=masked_tokens), extra

    def max_positions(self) -> int:
        """The same for all schemes: a sequence that is too long for one is refused, not left out."""
        return UNLIMITED


@register_family(ROBERTA)
class PosencRobertaModel(RobertaModel):
    """RoBERTa (Liu et al. 2019) whose positions are ``--positions EXPRESSION``."""

    option_set = ENCODER_OPTIONS
    build_core = staticmethod(build_encoder)

    @classmethod
    @naming_flags()
    def build_model(cls, args: DictConfig | argparse.Namespace, task: FairseqTask) -> PosencRobertaModel:
        """Build from a config in which None, or nothing, means the default.

        Raises:
            InputError: a configuration without meaning, or a task that needs a decoder; the message names the flag.
        """
        if isinstance(task, (TranslationTask, LanguageModelingTask)):
            name = "translation" if isinstance(task, TranslationTask) else "language_modeling"
            raise Refused(
                f"--task {name} generates text, and this model is an encoder, without a decoder: train one of --arch "
                "transformer_… (fairseq-posenc schemes lists the schemes), or name its checkpoint"
            )
        args = complete(args, task.cfg)
        with open_dict(args):
            args.layernorm_embedding = not args.no_layernorm_embedding
            OmegaConf.set_struct(args, False)  # RobertaEncoder adds what our config has no field for
            model = cls(args, PosencRobertaEncoder(args, task.source_dictionary))
        record(args, model.encoder.sentence_encoder.positions)
        logger.info(summary(model, model.encoder.sentence_encoder, getattr(task.cfg, "tokens_per_sample", None)))
        return model

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
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        bpe: str | None = None,
        **overrides: Any,
    ) -> RobertaHubInterface:
        """fairseq's hub interface to a checkpoint in a folder, with the tokenizer that stands beside its dict.txt.

        Args:
            model_name_or_path: the folder.
            checkpoint_file: the file in it.
            data_name_or_path: the folder of the dictionary and the tokenizer, relative to that folder where it begins with a dot;
                by default that folder, or the data-bin that the checkpoint was trained on where there is no dict.txt in it.
            bpe, overrides: where given, all is fairseq's own way.

        Raises:
            InputError, OSError: not such a checkpoint, or not its vocabulary.
        """
        if bpe is not None or overrides:
            return super().from_pretrained(model_name_or_path, checkpoint_file, data_name_or_path, bpe or "gpt2", **overrides)
        from .hub import load_hub_interface  # which few need, with its libraries

        folder = Path(model_name_or_path)
        data = folder / data_name_or_path if data_name_or_path.startswith(".") else Path(data_name_or_path)
        anywhere = data_name_or_path == "." and not (data / "dict.txt").exists()
        return load_hub_interface(folder / checkpoint_file, None if anywhere else data)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        ours = from_stock(state_dict, self.encoder.dictionary.pad())
        state_dict.clear()
        state_dict.update(ours)
        super().upgrade_state_dict_named(state_dict, name)


let_stock_load_ours()
