"""Linear layers whose weights lie in memory as the CPU's matrix kernels read them.

torch's own layer hands oneDNN a plain matrix, which it lays out anew in each call. With a few rows, as decoding has
them, that is more work than the product: of SmolLM2-135M, 8 rows in bfloat16, 39 ms a token instead of 20 on one core.
The products are the same. The operators are those that torch's own compiler (inductor) puts in when weights are
frozen; here they need no compiler, and new weights are laid out again in a fraction of a second.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PrepackedLinear(nn.Module):
    """Takes a linear layer's place, under the same names of weights. They are kept twice, plain and laid out.

    After the plain ones have changed, `pack` takes them over.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.pack()

    def pack(self) -> None:
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._packed, self.bias, "none", [], "")
        return outputs


def prepack(model: nn.Module) -> None:
    """Replaces the model's linear layers where the CPU has the kernels. Call again after weights have changed."""
    for name, module in list(model.named_modules()):
        if isinstance(module, PrepackedLinear):
            module.pack()
        elif type(module) is nn.Linear and _has_kernels(module.weight.dtype):
            model.set_submodule(name, PrepackedLinear(module))


def _has_kernels(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
