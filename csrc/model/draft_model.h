// Plans a draft model for its model: what it needs, and whether it can be of use.
#pragma once

#include <cstdint>

#include "model/model.h"

namespace imp {

// Bytes of the weights that the evaluation of one token reads. A step that decodes takes about as long as that.
std::uint64_t bytes_per_token(const LoadPlan& plan);

// Slots of a draft model's recurrent state: a step reads one and writes another.
inline constexpr int kDraftStateSlots = 2;

// Whether it may guess, and not only score prompts: a recurrent state does not go back over wrong guesses.
inline bool may_guess(const ModelConfig& draft) noexcept {
  return draft.n_state_layers() == 0;
}

// The options for a draft model, of those for its model.
LoadOptions draft_options(LoadOptions options);

// Plans the load of a draft model and adds its memory to the model's plan. Its context is at most the model's. Throws
// ModelError, and InvalidArgument if it reads as much for a token as the model; both messages begin with the setting,
// speculation.model.
LoadPlan plan_draft(const ModelFile& file, const Backend& backend, LoadPlan& model, const ModelOverrides& overrides,
                    const LoadOptions& options);

// Loads what was planned, with the blocks that the model's memory plan has for it.
std::unique_ptr<const Model> load_draft(const ModelFile& file, Backend& backend, LoadPlan plan, int n_blocks,
                                        const LoadOptions& options);

}  // namespace imp
