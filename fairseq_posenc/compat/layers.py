"""fairseq's own transformer layers on current PyTorch."""

from fairseq_posenc.compat.view import wrap


def no_fused_encoder_layer() -> None:
    """Keep fairseq's encoder layers on their ordinary path in evaluation.

    Once a state dict is loaded, they call ``torch._transformer_encoder_layer_fwd`` with arguments of PyTorch 1.12, and
    fairseq-generate ends with "Mask Type should be defined". Can be removed when fairseq passes ``mask_type``.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    @wrap(TransformerEncoderLayerBase, "__init__")
    def without_fastpath(init, self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.can_use_fastpath = False


PATCHES = (no_fused_encoder_layer,)
