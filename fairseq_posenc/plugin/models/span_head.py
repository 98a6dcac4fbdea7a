"""The head of question answering, which fairseq lacks."""

from torch import Tensor, nn

from ..checkpoint.state_dict import StateDict


class SpanHead(nn.Module):
    """Scores of each token as the first and as the last of the answer: one linear layer (Devlin et al. 2019, section 4.2).

    It replaces the language model's head, so that the model's forward pass returns its scores.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.span = nn.Linear(dim, 2)
        nn.init.normal_(self.span.weight, std=0.02)
        nn.init.zeros_(self.span.bias)

    def forward(self, features: Tensor, masked_tokens: Tensor | None = None) -> Tensor:
        """(B, n, D) -> (B, n, 2)."""
        return self.span(features)

    def upgrade_state_dict_named(self, state: StateDict, name: str) -> None:
        """Replace the language model's head of a pretrained checkpoint by this one."""
        values = {f"{name}.{key}": value for key, value in self.state_dict().items()}
        for key in [key for key in state if key.startswith(f"{name}.") and key not in values]:
            del state[key]
        for key, value in values.items():
            state.setdefault(key, value)
