// Decides which tensors belong to a decoder.
#include "model/arch/tensor_names.h"

#include <charconv>

namespace imp {
namespace {

// "output_norm.weight" → "output_norm": the bias of a known weight belongs to the decoder too.
std::string_view stem(std::string_view name) {
  return name.substr(0, name.find('.'));
}

}  // namespace

int TensorNames::layer_of(std::string_view tensor) const noexcept {
  if (!tensor.starts_with(layer)) return -1;
  int number = -1;
  const auto [end, error] = std::from_chars(tensor.data() + layer.size(), tensor.data() + tensor.size(), number);
  const bool is_number = error == std::errc{} && end != tensor.data() + tensor.size() && *end == '.';
  return is_number && number >= first_layer ? number - first_layer : -1;
}

bool TensorNames::belongs_to_decoder(std::string_view tensor) const noexcept {
  if (tensor.ends_with(kAnglesTable)) return false;
  // Draft layers ("multi-token prediction").
  if (tensor.starts_with("model.mtp.") || tensor.starts_with("model.mtp_layers.")) return false;
  if (tensor.starts_with(layer)) return true;
  const std::string_view found = stem(tensor);
  // In safetensors, every tensor of the module that holds the layers belongs to the decoder.
  constexpr std::string_view kLayers = "layers.";
  if (layer.ends_with(kLayers))
    return tensor.starts_with(layer.substr(0, layer.size() - kLayers.size())) || found == stem(output_head);
  return found == stem(embedding) || found == stem(final_norm) || found == stem(output_head) ||
         found == stem(text.positions) || found == stem(text.token_types) || found == stem(text.embedding_norm) ||
         found.starts_with("rope_") || found.starts_with("per_layer_");
}

}  // namespace imp
