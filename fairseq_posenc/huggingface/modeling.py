"""The models for transformers, around the shared encoder. This module is part of every export."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, modeling_outputs
from transformers.utils import ModelOutput, can_return_tuple

from ..base.errors import InputError
from ..core.attention import BACKENDS, Mask
from ..core.schemes import Scheme
from ..core.terms import is_captured, starts_of
from ..core.transformer import Encoder, EncoderConfig, LanguageModelHead, Stack, build_positions
from ..core.transformer.heads import ClassificationHead
from ..core.transformer.sampling import PLAIN
from ..core.transformer.stack import reordered, require_shape, tokens_first
from .configuration import PosencConfig

Given = Tensor | None


class PosencPreTrainedModel(PreTrainedModel):
    """The base class of the models below: what transformers asks of a class, and how weights start that a checkpoint lacks."""

    config_class = PosencConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Encoder"]  # noqa: RUF012 - transformers reads a class attribute; layers share the positions

    @property
    def _supports_sdpa(self) -> bool:
        """Whether ``attn_implementation="sdpa"`` can run the scheme; where it cannot, the default is ``"eager"``."""
        return self._sdpa_objection() is None

    def _sdpa_objection(self) -> str | None:
        with torch.device("meta"):
            probes = build_positions(self.config.core_config()).probes()
            return next((reason for probe in probes if (reason := BACKENDS["sdpa"].objection(probe))), None)

    def _sdpa_can_dispatch(self, is_init_check: bool = False) -> bool:
        if (objection := self._sdpa_objection()) is not None:
            raise InputError(f'attn_implementation="sdpa" cannot run {self.config.positions}: {objection}; use "eager"')
        return True

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        return True

    def complete(self, core: Stack, own: bool) -> None:
        """End the initialisation of a model of ``core``, whose weights are its ``own`` where transformers draws others."""
        for module in core.modules() if own and not core.embed_tokens.weight.is_meta else ():
            vars(module)["_is_hf_initialized"] = True
        self.config.complete_options()
        self.gradient_checkpointing = core.checkpoint_activations
        self.post_init()

    def first_states(self, states: Tensor, input_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor:
        """(B, n, D) -> (B, D): the state of each sequence's first token, with padding on either side."""
        if attention_mask is not None:
            tokens = _visible(attention_mask, *states.shape[:2])[0]
        elif input_ids is not None:
            tokens = input_ids != self.config.padding_idx
        else:
            return states[:, 0]
        return states[torch.arange(states.shape[0], device=states.device), tokens.int().argmax(1)]

    def _init_weights(self, module: nn.Module) -> None:
        if not isinstance(module, Scheme):
            return super()._init_weights(module)
        fresh = dict(type(module)(module.settings, module.options).named_parameters())
        for name, parameter in module.named_parameters():
            if not getattr(parameter, "_is_hf_initialized", False):
                with torch.no_grad():
                    parameter.copy_(fresh[name])


class PosencModel(PosencPreTrainedModel):
    """The encoder without a head, :class:`Encoder` as transformers calls its models: tokens (B, n) -> hidden states (B, n, D).

    Raises:
        InputError: the configuration describes no encoder.
    """

    def __init__(self, config: PosencConfig) -> None:
        super().__init__(config)
        self.encoder = Encoder(config.encoder_config())
        self.complete(self.encoder, config.initialization != "bert" or config.scale_embeddings)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self, input_ids: Given = None, attention_mask: Given = None, token_type_ids: Given = None, *, inputs_embeds: Given = None,
        output_attentions: bool | None = None, output_hidden_states: bool | None = None, decode_masks: bool = False,
        position_ids: Given = None, **others: Any,
    ) -> modeling_outputs.BaseModelOutput:  # fmt: skip
        """Return the hidden states.

        Args:
            input_ids: (B, n).
            attention_mask: (B, n), 0 at padding; by default, where ``input_ids`` are the padding symbol. Or (B or 1, 1, n, n),
                the keys of each query, which are the tokens of its document: documents lie side by side in a row, and positions
                restart in each unless they are given.
            token_type_ids: None or zeros.
            inputs_embeds: (B, n, D or E), used instead of word embeddings.
            output_attentions: also return the attention weights, which the eager backend computes.
            output_hidden_states: also return the states between the layers.
            decode_masks: return the states that masked words are predicted from, as :class:`Encoder` does.
            position_ids: (B or 1, n) the position of each token. Where the whole numbers of all rows count tokens, from 0 or,
                as RoBERTa's, from ``padding_idx + 1``, they are the default; another document begins wherever they begin again,
                as in the batches of transformers' ``DataCollatorWithFlattening``. Others are taken as they are; then another
                document begins where a row that begins at 0 falls back to 0. Real numbers begin none.
            others: arguments of other encoders (``head_mask``, ``use_cache``, …), None or false.

        Raises:
            InputError: neither or both inputs, an argument that would change something elsewhere, a mask of another shape or of
                other pairs, or a sequence longer than the scheme takes.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise InputError("give either input_ids or inputs_embeds")
        require_zeros(token_type_ids)
        require_idle(others, "encoder")
        self.encoder.attention_backend = self.config._attn_implementation
        self.encoder.checkpoint_activations = self.gradient_checkpointing
        given: Any = inputs_embeds if input_ids is None else input_ids
        shape, padding, pairs, mask, order = given.shape[:2], None, None, None, None
        if attention_mask is not None:
            tokens, pairs = _visible(attention_mask, *shape)
            padding = ~tokens
        if position_ids is not None or pairs is not None:
            if position_ids is not None:
                require_shape(position_ids, *shape)
                sampling = self.encoder.sampling
                if is_captured() and sampling is not None and (self.training or sampling.evaluation != PLAIN):
                    raise InputError(  # whether they count tokens cannot be read
                        "a captured program of a model with position_sampling takes no position_ids: say by an attention_mask of "
                        "pairs where documents are"
                    )
            if padding is None and input_ids is not None:
                padding = input_ids == self.config.padding_idx
            padding = torch.zeros(shape, dtype=torch.bool, device=given.device) if padding is None else padding
            order = tokens_first(padding)
            rows = (input_ids, inputs_embeds, padding, position_ids, pairs)
            input_ids, inputs_embeds, padding, position_ids, pairs = (reordered(x, order) for x in rows)
            pairs = None if pairs is None else reordered(pairs.transpose(1, 2), order).transpose(1, 2)
            (position_ids, mask), padding = _documents(position_ids, padding, pairs, self.config.padding_idx + 1), None
        output = self.encoder(
            input_ids,
            padding,
            inputs_embeds,
            output_hidden_states=bool(self.config.output_hidden_states if output_hidden_states is None else output_hidden_states),
            output_attentions=bool(self.config.output_attentions if output_attentions is None else output_attentions),
            decode_masks=decode_masks,
            mask=mask,
            position_ids=position_ids,
        )
        output = output if order is None else output.reordered(order.argsort(1))
        states = output.last_hidden_state
        hidden = (*output.hidden_states[:-1], states) if output.hidden_states else None  # as transformers ties the last of them
        return modeling_outputs.BaseModelOutput(states, hidden, output.attentions or None)


def require_idle(arguments: Mapping[str, Any], model: str) -> None:
    """Raise InputError if an argument of other models, which means nothing to this one, is neither None nor false."""
    if idle := [name for name, value in arguments.items() if value is not None and value is not False]:
        raise InputError(f"{idle[0]} means nothing to this {model}: leave it out, or give None")


def require_zeros(token_type_ids: Tensor | None) -> None:
    """Raise InputError, or RuntimeError in a captured program, if there is another token type than 0."""
    message = "token_type_ids must be 0: the model has one type of tokens. Leave them out"
    if token_type_ids is not None and is_captured():
        torch._assert_async(~token_type_ids.any(), message)
    elif token_type_ids is not None and token_type_ids.any():
        raise InputError(message)


def _visible(attention_mask: Tensor, batch: int, n: int) -> tuple[Tensor, Tensor | None]:
    """(B, n) which tokens an attention mask shows, and (B, n, n) to which others, if it says so.

    A mask of pairs is true or 1 where a key is visible, or 0 there and far below 0 elsewhere, as transformers adds it to scores.
    """
    if attention_mask.shape == (batch, n):
        return attention_mask != 0, None
    if attention_mask.shape not in ((1, 1, n, n), (batch, 1, n, n)):
        raise InputError(
            f"attention_mask must be ({batch}, {n}), 0 at padding, or ({batch} or 1, 1, {n}, {n}), and it is "
            f"{tuple(attention_mask.shape)}"
        )
    pairs = attention_mask[:, 0].expand(batch, n, n)
    if not is_captured() and not ((pairs == 0) | (pairs == 1) | (pairs < -1000)).all():
        raise InputError("attention_mask of pairs must be 1 and 0, or 0 and far below 0: other numbers have no meaning here")
    pairs = pairs == pairs.amax()
    return pairs.any(1), pairs


def _documents(ids: Tensor | None, padding: Tensor, pairs: Tensor | None, first: int) -> tuple[Tensor | None, Mask]:
    """The positions in their documents, None if they count tokens from 0 or from ``first``, and the mask of the documents."""
    starts, places = None, torch.arange(padding.shape[1], device=padding.device)
    if pairs is not None:
        before = (places - 1).clamp(min=0)[None, :, None].expand(*padding.shape, 1)
        starts = starts_of(~pairs.gather(2, before)[..., 0])
        same = (starts[:, :, None] == starts[:, None, :]) & ~padding[:, None, :]
        if not is_captured() and ((pairs != same) & ~padding[:, :, None]).any():
            raise InputError(
                "attention_mask of pairs must be of documents that lie side by side, whose tokens see one another and no others"
            )
    if ids is not None:
        ids = torch.where(padding, torch.zeros_like(ids), ids)
    if ids is not None and not ids.is_floating_point():
        least = torch.where(padding, ids.max(), ids).min()
        again = starts_of(ids == least) if starts is None else starts
        counted = ((ids - least == places - again) | padding).all() & ((least == 0) | (least == first))
        if starts is None:
            starts = starts_of((ids < F.pad(ids, (1, 0))[:, :-1]) & (ids == 0) & (ids[:, :1] == 0) & ~padding)
            starts = torch.where(counted, again, starts)
        ids = torch.where(counted, ids - least, ids) if is_captured() else None if counted else ids
    if is_captured():
        return ids, Mask(padding, documents=starts)
    masking = (part if part is not None and part.any() else None for part in (padding, starts))  # else more backends can run
    return ids, Mask(next(masking), documents=next(masking))


class PosencLanguageModelHead(LanguageModelHead):
    """The language model's head, whose output projection is the module ``decoder``, which transformers ties and resizes."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.decoder = nn.Linear(self.width, config.vocab_size, config.output_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, D) -> (B, n, V)."""
        return self.decoder(self.inner(x))  # quantized and adapted modules have other weights than they apply


class PosencWithHead(PosencPreTrainedModel):
    """The encoder with a head: subclasses add its modules, and have its scores and the class of its output."""

    output_class: Any = ModelOutput
    decodes_masks = False

    def __init__(self, config: PosencConfig) -> None:
        super().__init__(config)
        self.model = PosencModel(config)
        self.add_head(config)
        self.post_init()

    def add_head(self, config: PosencConfig) -> None:
        """Add the modules of the head."""
        raise NotImplementedError

    def head_scores(self, states: Tensor, tokens: Given, attention_mask: Given) -> Tensor:
        """The head's scores of the states (B, n, D) of tokens (B, n) with their mask."""
        raise NotImplementedError

    @can_return_tuple
    def forward(
        self, input_ids: Given = None, attention_mask: Given = None, token_type_ids: Given = None, *, labels: Given = None,
        **options: Any,
    ) -> ModelOutput:  # fmt: skip
        """Return the head's scores, ``logits``, and with ``labels`` the loss.

        Args:
            input_ids: (B, n), and with the other arguments as for :class:`PosencModel`, whose errors this raises, too.
            attention_mask: (B, n) or (B or 1, 1, n, n).
            token_type_ids: None or zeros.
            labels: (B,) of classes of sequences; (B, n) of symbols or classes of tokens, -100 where there is none.
            options: further arguments of :class:`PosencModel`.
        """
        items, loss = options.pop("num_items_in_batch", None), None
        options |= {"decode_masks": self.decodes_masks, "return_dict": True}
        output = self.model(input_ids, attention_mask, token_type_ids, **options)
        scores = self.head_scores(output.last_hidden_state, input_ids, attention_mask)
        if labels is not None:  # by the names that transformers' losses have for what they need
            named = {"logits": scores, "pooled_logits": scores, "vocab_size": self.config.vocab_size, "config": self.config}
            loss = self.loss_function(labels=labels, num_items_in_batch=items, **named)
        return self.output_class(loss, scores, output.hidden_states, output.attentions)


class PosencForMaskedLM(PosencWithHead):
    """The encoder with the language model's head that it was pretrained with: scores (B, n, V) of every symbol."""

    _tied_weights_keys = {"lm_head.decoder.weight": "model.encoder.embed_tokens.weight"}  # noqa: RUF012
    output_class, decodes_masks = modeling_outputs.MaskedLMOutput, True

    def add_head(self, config: PosencConfig) -> None:
        self.lm_head = PosencLanguageModelHead(config.encoder_config())

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.lm_head.decoder = value

    def head_scores(self, states: Tensor, tokens: Given, attention_mask: Given) -> Tensor:
        return self.lm_head(states)


def _classification_head(config: PosencConfig, classes: int) -> ClassificationHead:
    width = config.pooler_dim or config.dim
    return ClassificationHead(config.dim, width, classes, config.pooler_activation, config.pooler_dropout)


class PosencForSequenceClassification(PosencWithHead):
    """The encoder with a head for classes of sequences, or for a number: scores (B, classes)."""

    accepts_loss_kwargs = False  # the loss is the average over a batch, whatever num_items_in_batch is
    output_class = modeling_outputs.SequenceClassifierOutput

    def add_head(self, config: PosencConfig) -> None:
        self.classifier = _classification_head(config, config.num_labels)

    def head_scores(self, states: Tensor, tokens: Given, attention_mask: Given) -> Tensor:
        return self.classifier(self.first_states(states, tokens, attention_mask))


class PosencForTokenClassification(PosencWithHead):
    """The encoder with a head for classes of tokens: scores (B, n, classes)."""

    output_class = modeling_outputs.TokenClassifierOutput

    def add_head(self, config: PosencConfig) -> None:
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.dim, config.num_labels)

    def head_scores(self, states: Tensor, tokens: Given, attention_mask: Given) -> Tensor:
        return self.classifier(self.dropout(states))


class PosencForMultipleChoice(PosencForSequenceClassification):
    """The encoder with a head that scores each of several sequences (B, choices, n), one of which is to be chosen."""

    output_class = modeling_outputs.MultipleChoiceModelOutput

    def add_head(self, config: PosencConfig) -> None:
        self.classifier = _classification_head(config, 1)

    @can_return_tuple
    def forward(
        self, input_ids: Given = None, attention_mask: Given = None, token_type_ids: Given = None, *, labels: Given = None,
        **options: Any,
    ) -> ModelOutput:  # fmt: skip
        """Return the scores (B, choices) of sequences (B, choices, n), and the loss where ``labels`` (B,) are given."""
        embeds, positions = options.get("inputs_embeds"), options.get("position_ids")
        flat = [None if x is None else x.flatten(0, 1) for x in (input_ids, attention_mask, token_type_ids, embeds)]
        positions = None if positions is None else positions.reshape(-1, positions.shape[-1])
        options |= {"inputs_embeds": flat.pop(), "position_ids": positions, "return_dict": True}
        output = super().forward(*flat, **options)
        choices = next(x for x in (input_ids, embeds) if x is not None).shape[1]
        scores = output.logits.view(-1, choices)
        loss = None if labels is None else F.cross_entropy(scores.float(), labels)
        return self.output_class(loss, scores, output.hidden_states, output.attentions)


class PosencForQuestionAnswering(PosencWithHead):
    """The encoder with a head that scores each token as the first and as the last of the answer."""

    def add_head(self, config: PosencConfig) -> None:
        self.qa_outputs = nn.Linear(config.dim, 2)

    @can_return_tuple
    def forward(
        self, input_ids: Given = None, attention_mask: Given = None, token_type_ids: Given = None, *,
        start_positions: Given = None, end_positions: Given = None, **options: Any,
    ) -> modeling_outputs.QuestionAnsweringModelOutput:  # fmt: skip
        """Return the scores (B, n) of the answer's first and last token, and the loss where both positions (B,) are given."""
        items = options.pop("num_items_in_batch", None)
        output = self.model(input_ids, attention_mask, token_type_ids, **options | {"return_dict": True})
        start, end = self.qa_outputs(output.last_hidden_state).unbind(-1)
        loss = self.loss_function(start, end, start_positions, end_positions, num_items_in_batch=items)
        return modeling_outputs.QuestionAnsweringModelOutput(loss, start, end, output.hidden_states, output.attentions)
