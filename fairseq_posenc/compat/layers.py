"""fairseq's own transformer layers on current PyTorch."""

from .view import wrap


def no_fused_encoder_layer() -> None:
    """Keep fairseq's encoder layers from PyTorch's fused path in evaluation.

    They call ``torch._transformer_encoder_layer_fwd`` with arguments of PyTorch 1.12, and fairseq-generate ends with "Mask Type
    should be defined". Can be removed when fairseq passes ``mask_type``.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    @wrap(TransformerEncoderLayerBase, "__init__")
    def without_fastpath(init, self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.can_use_fastpath = False


PATCHES = (no_fused_encoder_layer,)
