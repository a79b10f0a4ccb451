// A loaded model: its configuration, its weights and its memory plan.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "files/model_file.h"
#include "model/arch/resolve.h"
#include "model/config/model_config.h"
#include "model/config/model_overrides.h"
#include "model/config/origins.h"
#include "model/forward_pass.h"
#include "model/memory_plan.h"
#include "model/vision/vision_plan.h"
#include "model/weights/head_plan.h"
#include "model/weights/load_weights.h"
#include "model/weights/weight_plan.h"
#include "model/weights/weights.h"

namespace imp {

struct LoadOptions {
  ForwardLimits limits{.max_rows = 512, .max_logits_rows = 64};  // of the decoders to come
  int kv_block_tokens = 16;
  std::uint64_t memory_bytes = std::numeric_limits<std::uint64_t>::max();  // for everything
  std::uint64_t reserve_bytes = 0;                                         // of these, left for the rest of the process
  std::optional<std::uint64_t> kv_bytes;                                   // empty: plan_memory chooses
  int max_running = 64;                               // sequences that hold a recurrent state at once
  std::optional<std::uint64_t> state_snapshot_bytes;  // of recurrent states; empty: plan_memory chooses
  std::optional<std::uint64_t> draft_kv_bytes;        // of a draft model; empty: plan_memory chooses
  // A draft head: that of the model's own file, or that of another one.
  bool with_own_head = false;
  const ModelFile* head_file = nullptr;
  // With `vision`, a vision tower: that of the projector's file, or that of the model's own directory if it has one.
  bool vision = false;
  const ModelFile* projector_file = nullptr;
  bool projector_may_not_fit = false;        // then it is left out, with a warning
  std::optional<std::uint64_t> media_bytes;  // of kept encodings; empty: two of the largest image, at least 64 MiB
  int image_cells = 1024;                    // the most of an image in families of any size
  bool draft_scores_prompts = false;         // a draft model chooses the part of prompts that is evaluated
  LoadProgress progress;
  std::string packed_cache;  // a folder; empty: no cache
};

// The plan and state of one tensor.
struct WeightSummary {
  std::string tensor;
  GemmProblem problem;
  WeightUse use = WeightUse::product;
  int n_matrices = 1;  // with the problem's shape
  GemmPlan plan;       // for matrices
  std::uint64_t n_bytes = 0;
};

struct LoadPlan;

// Immutable once loaded; any thread may use it. The backend must outlive it; the file need not.
class Model {
 public:
  const std::string& architecture() const noexcept { return architecture_; }
  const ModelConfig& config() const noexcept { return config_; }
  const std::vector<Fact>& facts() const noexcept { return facts_; }
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }
  const Weights& weights() const noexcept { return weights_; }
  const std::vector<Rope>& ropes() const noexcept { return ropes_; }
  const std::vector<WeightSummary>& weight_summaries() const noexcept { return summaries_; }
  const MemoryPlan& memory() const noexcept { return memory_; }
  // None if the load did not ask for one, or if the file has none.
  const std::optional<HeadModel>& head() const noexcept { return head_; }
  // If the load had a cache folder.
  const std::optional<PackedWeights>& packed() const noexcept { return packed_; }
  // Writes the cache, which must exist; see PackedCache::write.
  bool write_packed(const std::function<bool()>& goes_on) const;
  int kv_block_tokens() const noexcept { return kv_block_tokens_; }

 private:
  Model() = default;
  void lower_context();  // to what the cache holds
  friend std::unique_ptr<const Model> load_planned(const ModelFile&, Backend&, LoadPlan, MemoryPlan,
                                                   const LoadOptions&);

  std::string architecture_;
  ModelConfig config_;
  std::vector<Fact> facts_;
  std::vector<std::string> warnings_;
  Weights weights_;
  std::vector<Rope> ropes_;
  std::optional<HeadModel> head_;
  std::vector<WeightSummary> summaries_;
  MemoryPlan memory_;
  std::optional<PackedWeights> packed_;
  int kv_block_tokens_ = 0;
};

KvGeometry kv_geometry(const ModelConfig& config, int block_tokens, int n_blocks, int n_state_slots);

// What a load would do. Points into the file.
struct LoadPlan {
  ResolvedModel resolved;
  WeightPlan weights;
  std::optional<HeadPlan> head;
  std::optional<VisionPlan> vision;
  ForwardLimits limits;  // of the decoder
  MemoryRequest memory;
};

// Reads no weight and allocates nothing on the device. plan_memory() decides whether the memory suffices.
LoadPlan plan_load(const ModelFile& file, const Backend& backend, const ModelOverrides& overrides,
                   const LoadOptions& options);

std::vector<WeightSummary> summaries_of(const WeightPlan& plan);

// Loads what was planned. config().max_context is at most that of the memory plan.
std::unique_ptr<const Model> load_planned(const ModelFile& file, Backend& backend, LoadPlan plan, MemoryPlan memory,
                                          const LoadOptions& options);

// Resolves the configuration, plans kernels and memory, and only then reads weights. config().max_context is at most
// what the cache can hold.
std::unique_ptr<const Model> load_model(const ModelFile& file, Backend& backend, const ModelOverrides& overrides,
                                        const LoadOptions& options);

}  // namespace imp
