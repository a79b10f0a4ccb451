"""What a model of `transformers` consists of, in NumPy: its configuration and its tensors."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.models.tiny_models import hashed

Array = NDArray[np.float32]
# Modules of models that also see or hear.
_NOT_TEXT = tuple(
    f"model.{name}" for name in ("visual.", "vision_", "multi_modal_projector.", "embed_vision.", "connector.")
)
# Buffers that files hold next to the parameters.
_BUFFERS = (".layer_scalar", ".act_fn.beta", ".act_fn.eps")
# Bounds of what a product reads and writes.
BOUNDS = (".input_min", ".input_max", ".output_min", ".output_max")
# Buffers that hold what was learned.
_FILLED = (".layer_scalar", ".std_bias", ".std_scale", *BOUNDS)


@dataclasses.dataclass(frozen=True)
class Weights:
    """The text part of a model, with the names that the library gives its parameters."""

    config: dict[str, Any]  # the content of config.json
    tensors: dict[str, Array]
    frequencies: list[float]  # of the rope whose file holds divisors instead of the rules that they come from

    @property
    def text(self) -> dict[str, Any]:
        """The configuration of the text part."""
        found: dict[str, Any] = self.config.get("text_config", self.config)
        return found

    def heads(self, layer: int) -> dict[str, Any]:
        """Returns the configuration with what holds for this layer alone."""
        return self.text | self.text.get("per_layer_config", {}).get(str(layer), {})


def stores_less_one(model_type: str, name: str) -> bool:
    """Whether files of the library hold a norm's weights minus one."""
    if model_type.startswith(("qwen3_5", "qwen3_next")):
        return ".linear_attn." not in name and ".visual." not in name
    return "gemma" in model_type and not model_type.startswith("gemma4") and "vision_tower." not in name


def filled(model_type: str, name: str, shape: tuple[int, ...], seed: int = 0) -> NDArray[np.float64]:
    """Returns numbers for a parameter that no other parameter has."""
    values = hashed(name, shape, seed)
    if name.endswith(BOUNDS):  # near those of numbers around 0
        return np.asarray((-1 if name.endswith("_min") else 1) * (0.9 + 0.4 * values))
    n_terms = np.prod(shape[1:]) if len(shape) > 3 else shape[-1]  # of a convolution, or of a product
    is_table = "embed" in name and "proj" not in name and len(shape) in (2, 3)
    spread = 1.0 if is_table else np.sqrt(3.0 / n_terms)
    if len(shape) == 1:
        is_factor = "norm" in name.lower() or name.endswith(("scale", "scalar"))
        centre = 1.0 if is_factor and not stores_less_one(model_type, name) else 0.0
        values, spread = centre + 0.4 * values, 1.0
    if name.endswith("gate_up_proj_bias"):
        spread = 9.0  # beyond the limits of the gate
    elif name.endswith("sinks"):
        spread = 2.0
    return values * spread


def fill(model: Any, seed: int = 0) -> None:
    """Gives every parameter of the library's model numbers of its own, norms and biases too."""
    import torch

    buffers = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(_FILLED)]
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *buffers]:
            values = filled(model.config.model_type, name, tuple(parameter.shape), seed)
            parameter.copy_(torch.from_numpy(values).to(parameter.dtype))


def is_of_text(name: str) -> bool:
    return not name.startswith(_NOT_TEXT)


def weights_of(model: Any) -> Weights:
    """Returns copies, so that a test may change them without the model."""
    buffers = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(_BUFFERS)]
    tensors = {
        name: parameter.detach().numpy().astype(np.float32)
        for name, parameter in [*model.named_parameters(), *buffers]
        if is_of_text(name)
    }
    parameters = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    has_divisors = parameters.get("rope_type") == "llama3"
    frequencies = model.model.rotary_emb.inv_freq.tolist() if has_divisors else []
    return Weights(json.loads(model.config.to_json_string()), tensors, frequencies)
