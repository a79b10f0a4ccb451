// The one table of drafters. The engine finds a drafter by it. imp.conf and requests take the names from it through
// `_core.drafters()`.
#pragma once

#include <iterator>
#include <memory>
#include <string_view>

#include "engine/data/guess.h"
#include "engine/speculation/drafter.h"
#include "engine/speculation/head_drafter.h"
#include "engine/speculation/model_drafter.h"
#include "engine/speculation/ngram_drafter.h"

namespace imp {

struct DrafterRow {
  std::string_view name;
  std::string_view meaning;
  std::unique_ptr<Drafter> (*make)();  // null: make_drafters() makes it from weights
};

template <class T>
std::unique_ptr<Drafter> make_drafter() {
  return std::make_unique<T>();
}

inline constexpr DrafterRow kDrafters[] = {
    {NgramDrafter::kName, "prompt lookup", &make_drafter<NgramDrafter>},
    {HeadDrafter::kName, "a draft head", nullptr},
    {ModelDrafter::kName, "a draft model", nullptr},
};
static_assert(std::size(kDrafters) < kMaxDrafters);  // and the grammar

}  // namespace imp
