// Records the origins of a configuration's fields.
#include "model/config/origins.h"

#include <utility>

namespace imp {

std::string_view origin_name(Origin origin) noexcept {
  switch (origin) {
    case Origin::checkpoint:
      return "checkpoint";
    case Origin::architecture:
      return "architecture";
    case Origin::user:
      return "override";
  }
  return "architecture";
}

void Origins::note(std::string_view field, Origin origin, std::string source) {
  notes_.insert_or_assign(std::string(field), OriginNote{origin, std::move(source)});
}

OriginNote Origins::find(std::string_view field) const {
  const auto found = notes_.find(field);
  return found == notes_.end() ? OriginNote{} : found->second;
}

}  // namespace imp
