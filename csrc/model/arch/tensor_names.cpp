// Decides which tensors belong to a decoder.
#include "model/arch/tensor_names.h"

namespace imp {
namespace {

// "output_norm.weight" → "output_norm": the bias of a known weight belongs to the decoder too.
std::string_view stem(std::string_view name) {
  return name.substr(0, name.find('.'));
}

}  // namespace

bool TensorNames::belongs_to_decoder(std::string_view tensor) const noexcept {
  // Some checkpoints store a table of angles that follows from the configuration.
  if (tensor.ends_with(".rotary_emb.inv_freq")) return false;
  if (tensor.starts_with(layer)) return true;
  const std::string_view found = stem(tensor);
  // In safetensors, every tensor of the module that holds the layers belongs to the decoder.
  constexpr std::string_view kLayers = "layers.";
  if (layer.ends_with(kLayers))
    return tensor.starts_with(layer.substr(0, layer.size() - kLayers.size())) || found == stem(head);
  return found == stem(embedding) || found == stem(final_norm) || found == stem(head) || found.starts_with("rope_");
}

}  // namespace imp
