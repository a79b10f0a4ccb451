// What the ops of a backend are given besides rows: activations, norms, and the terms of products.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/rows.h"
#include "backend/weights.h"

namespace imp {

enum class GatedActivation : std::uint8_t {
  silu,
  gelu_tanh,
  gelu_erf,  // of families with layer_norm, which a backend may lack
};

// An activation without a gate.
enum class PlainActivation : std::uint8_t {
  gelu_tanh,
  gelu_erf,
  relu_squared,  // max(x, 0)²
  tanh,
  xielu,  // "Deriving Activation Functions Using Integration"
};

// With x > 0: positive · x² + slope · x, else negative · (exp(min(x, largest)) - 1 - x) + slope · x.
struct XieluParams {
  float positive = 0;
  float negative = 0;
  float slope = 0;
  float largest = 0;  // just below 0
};

// A gate with limits: out = g · sigmoid(slope · g) · (u + 1), where g is the gate, at most `limit`, and u is the
// product that it gates, from -limit to limit.
struct ClampedSilu {
  float limit = 0;
  float slope = 1;
};

// Rows at position p are multiplied by 1 + growth · ln(1 + floor(p / period)).
struct PositionScale {
  float growth = 0;  // 0: none
  int period = 1;
};

// One of several products with the same input.
struct LinearTerm {
  const Linear* weight = nullptr;
  const Vector* bias = nullptr;  // or null
  Rows out;                      // [x.n_rows, n]; does not overlap x
};

// A gated linear unit ("GLU Variants Improve Transformer"): two products with the same input, one of which gates the
// other.
struct GatedTerm {
  const Linear* gate = nullptr;
  const Vector* gate_bias = nullptr;  // or null
  const Linear* up = nullptr;         // of the same shape
  const Vector* up_bias = nullptr;    // or null
  Rows out;                           // [x.n_rows, n]; does not overlap x
};

// Normalization of runs of elements.
struct Norm {
  const Vector* weight = nullptr;  // as long as a run; null: no normalization
  float epsilon = 0;
  // The weight of the product that reads the result in the next op, if any. The backend may then also write the result
  // in the format that this product reads.
  const Linear* reader = nullptr;
  const Vector* bias = nullptr;  // of layer_norm alone, or null
};

// Rows of heads: each head is normalized by itself and rotated.
struct RopeTerm {
  Rows x;  // [n, n_heads · head_dim]
  Norm norm;
};

// One of several products with the same input: each grouped row times the matrix of its expert.
struct ExpertTerm {
  std::span<const std::unique_ptr<Linear>> weights;  // [n_experts], equal in shape; types and plans may differ
  Rows out;                                          // [grouped rows, n]; does not overlap the input
  const Vector* biases = nullptr;                    // [n_experts, n], or null; a backend may lack them
};

}  // namespace imp
