// The small ops of the device, each one launch: what CudaBackend calls, and where their bodies are declared.
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

struct Answer;
struct PreparedRows;

// All pointers are addresses on the device; shapes and aliasing as Backend says.
void rms_norm(Stream& stream, Rows x, const float* weight, float epsilon, Rows out, const PreparedRows& along);
void add_norm(Stream& stream, Rows x, Rows y, const float* weight, float epsilon, Rows out, const PreparedRows& along);
// frequencies [dims / 2], of the host
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
// A row of the table for each of n tokens, decoded from its layout. A token that was drawn is among the answers.
void embed(Stream& stream, const std::int32_t* tokens, const Answer* answers, int n, const std::byte* table, DType type,
           WeightLayout layout, std::int64_t k, float scale, Rows out);

// Fills in `out`, sources too. The scores are used up.
void route_experts(Stream& stream, Rows scores, const ExpertRouting& routing, const ExpertRows& out);
void mix_experts(Stream& stream, Rows grouped, const ExpertRows& rows, Rows out);

}  // namespace imp::cuda
