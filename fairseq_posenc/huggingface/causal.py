"""The causal language model for transformers, around the shared decoder. This module is part of every export of one."""

from typing import Any

from torch import Tensor, nn
from transformers import GenerationMixin, modeling_outputs
from transformers.utils import can_return_tuple

from ..base.errors import InputError
from ..core.transformer import Decoder
from .configuration import PosencConfig
from .modeling import Given, PosencPreTrainedModel, require_idle, require_zeros


class PosencForCausalLM(PosencPreTrainedModel, GenerationMixin):
    """The decoder of a language model that reads from left to right, :class:`Decoder`: tokens (B, n) -> scores (B, n, V).

    It has no cache: ``generate`` computes the states of the whole text for each new token.

    Raises:
        InputError: the configuration describes no decoder.
    """

    base_model_prefix = ""
    _no_split_modules = ["Decoder"]  # noqa: RUF012 - transformers reads a class attribute; layers share the positions
    _tied_weights_keys = {"decoder.output_projection.weight": "decoder.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: PosencConfig) -> None:
        super().__init__(config)
        self.decoder = Decoder(config.decoder_config())
        self.complete(self.decoder, own=True)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.decoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.decoder.embed_tokens = value

    def get_output_embeddings(self) -> nn.Linear:
        return self.decoder.output_projection

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.decoder.output_projection = value

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, attention_mask: Given = None, logits_to_keep: int = 0, **_: Any
    ) -> dict[str, Any]:
        return {"input_ids": input_ids, "attention_mask": attention_mask, "logits_to_keep": logits_to_keep}

    @can_return_tuple
    def forward(
        self, input_ids: Given = None, attention_mask: Given = None, token_type_ids: Given = None, *, labels: Given = None,
        logits_to_keep: int | Tensor = 0, num_items_in_batch: Any = None, **others: Any,
    ) -> modeling_outputs.CausalLMOutput:  # fmt: skip
        """Return the scores of the token after each one, ``logits``, and with ``labels`` the loss.

        Args:
            input_ids: (B, n), padded on either side.
            attention_mask: (B, n), 0 at padding; padding symbols in ``input_ids`` are padding in any case.
            token_type_ids: None or zeros.
            labels: (B, n), usually ``input_ids``, -100 where there is none: label i + 1 is compared with the scores at i.
            logits_to_keep: of how many last tokens there are scores, 0: of all; or (k,) the places of those that have them.
            num_items_in_batch: what the loss is divided by, if it is not the number of labels.
            others: arguments of other decoders (``past_key_values``, ``output_hidden_states``, …), None or false.

        Raises:
            InputError: no ``input_ids``, an argument or an option of the configuration that would change something elsewhere, a
                mask of another shape, or a sequence longer than the scheme takes.
        """
        require_zeros(token_type_ids)
        returned = {name: getattr(self.config, name) for name in ("output_hidden_states", "output_attentions")}
        require_idle({**returned, **others}, "decoder")
        if input_ids is None:
            raise InputError("input_ids are missing: a decoder reads tokens")
        if attention_mask is not None:
            if attention_mask.shape != input_ids.shape:
                raise InputError(
                    f"attention_mask must be {tuple(input_ids.shape)}, 0 at padding, and it is {tuple(attention_mask.shape)}"
                )
            input_ids = input_ids.masked_fill(attention_mask == 0, self.config.padding_idx)
        self.decoder.attention_backend = self.config._attn_implementation
        self.decoder.checkpoint_activations = self.gradient_checkpointing
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        scores = self.decoder.output_projection(self.decoder(input_ids)[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(scores, labels, self.config.vocab_size, num_items_in_batch=num_items_in_batch)
        return modeling_outputs.CausalLMOutput(loss, scores)
