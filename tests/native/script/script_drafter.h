// A drafter that knows the script, so that its guesses are right as often as the test wants.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/speculation/drafter.h"
#include "native/script/script_backend.h"
#include "native/script/script_model.h"

namespace imp::testing {

// Draws each guess as the engine will draw the output, and then makes a part of the guesses wrong. Which ones depends
// only on the tokens before them.
class ScriptDrafter final : public Drafter {
 public:
  ScriptDrafter(ScriptModel& model, ScriptBackend& backend) : model_(model), backend_(backend) {
    tokens_.reserve(std::size_t{1} << 16U);  // so that it does not allocate either
  }
  std::string_view name() const noexcept override { return "script"; }
  void draft(std::span<DraftRequest> requests) override;

 private:
  void draft(DraftRequest& request);

  ScriptModel& model_;
  ScriptBackend& backend_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> row_;
};

// The drafters that the script wants.
Drafters script_drafters(ScriptModel& model, ScriptBackend& backend);

}  // namespace imp::testing
