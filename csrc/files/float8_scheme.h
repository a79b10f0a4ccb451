// Reads from config.json which tensors hold the scales of 8-bit weights, and what each scale covers.
#pragma once

#include <cstdint>
#include <optional>

#include "files/metadata.h"

namespace imp {

struct Float8Scheme {
  // The tile of a weight that shares a scale, in rows and columns; 0 if the configuration does not say. Then the shape
  // of the scales decides.
  std::int64_t block_rows = 0, block_columns = 0;
};

// Empty if the configuration has no quantization. Throws ModelError(MODEL_UNSUPPORTED), with the supported schemes, if
// a weight is not its E4M3 code times a scale.
//
// Scales of activations and of the KV cache have no effect: neither is rounded to 8 bits.
std::optional<Float8Scheme> float8_scheme(const Metadata& config);

// Whether a key of config.json belongs to the description of such a scheme.
bool is_quantization_key(std::string_view key) noexcept;

}  // namespace imp
