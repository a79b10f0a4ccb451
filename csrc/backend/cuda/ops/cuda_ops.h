// The small ops of the device; each function is one launch.
#pragma once

#include <cstdint>
#include <span>

#include "backend/attention.h"
#include "backend/cuda/device/stream.h"
#include "backend/experts.h"
#include "backend/rows.h"

namespace imp {
enum class DType : std::uint8_t;
enum class WeightLayout : std::uint8_t;
enum class GatedActivation : std::uint8_t;
}  // namespace imp

namespace imp::cuda {

struct DeviceResult;
struct PreparedRows;

// All pointers are device addresses; shapes and aliasing as in Backend.
void rms_norm(Stream& stream, Rows x, const float* weight, float epsilon, Rows out, const PreparedRows& prepared);
void add_norm(Stream& stream, Rows x, Rows y, const float* weight, float epsilon, Rows out,
              const PreparedRows& prepared);
// frequencies [dims / 2], on the host.
void rope_angles(Stream& stream, const std::int32_t* positions, int n, std::span<const double> frequencies,
                 float magnitude, Rows out);
// norm_weight [head_dim], or none
void rope(Stream& stream, Rows x, int head_dim, const float* norm_weight, float epsilon, RopeStyle style, int n_pairs,
          Rows angles);
void gated_activation(Stream& stream, GatedActivation kind, Rows gate, Rows up, Rows out);
void add(Stream& stream, Rows x, Rows y);
void add_gated(Stream& stream, Rows x, Rows y, Rows gates);
void soft_cap(Stream& stream, Rows x, float cap);
void gather_rows(Stream& stream, Rows x, const std::int32_t* rows, Rows out);
// Decodes a row of the table for each of n tokens. Tokens drawn on the device come from the results.
void embed(Stream& stream, const std::int32_t* tokens, const DeviceResult* results, int n, const std::byte* table,
           DType type, WeightLayout layout, std::int64_t k, float scale, Rows out);

// Fills `out`, with sources. Overwrites the scores.
void route_experts(Stream& stream, Rows scores, const ExpertRouting& routing, const ExpertRows& out);
void mix_experts(Stream& stream, Rows grouped, const ExpertRows& rows, Rows out);

}  // namespace imp::cuda
