// Sparse prefill: what a request asks for, what the server allows, and what the request got.
#pragma once

#include <cstdint>
#include <string_view>

namespace imp {

// Shares of a prompt are integers in units of 1 / kKeepAll, so that the number of tokens is exact.
inline constexpr int kKeepAll = 10000;

enum class SparsePolicy : std::uint8_t {
  dense,
  automatic,  // sparse where the prompt is long and it pays
  sparse,     // whatever the length
};

// What a request asks for.
struct SparseRequest {
  bool is_asked = false;  // else nothing is reported
  SparsePolicy policy = SparsePolicy::dense;
  std::int32_t keep = kKeepAll;
  std::int32_t backbone = 0;  // the share of its chunks that stay wherever the attention goes
};

// Why a prompt was evaluated as a whole.
enum class DenseReason : std::uint8_t {
  none,
  requested,
  keep_all,
  prompt_scores,  // each token's score needs its row
  media,          // the draft model sees no media
  over_limit,     // more tokens than the server scores, or than the draft model holds
  below_threshold,
  not_profitable,
  failed,  // scoring, or the evaluation of the part
};
// As in reports; empty for `none`.
std::string_view name_of(DenseReason reason) noexcept;

struct SparseLimits {
  int threshold = 8192;    // tokens not cached, up to which `automatic` is dense
  int max_tokens = 65536;  // beyond: dense
};

// What a request got.
struct SparseReport {
  bool is_asked = false;
  bool is_sparse = false;
  DenseReason reason = DenseReason::none;
  std::int32_t n_scored = 0;
  std::int32_t n_selected = 0;  // of those scored
  std::int64_t scoring_ns = 0;
};

}  // namespace imp
