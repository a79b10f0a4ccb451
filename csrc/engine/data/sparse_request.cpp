// The names of the reasons.
#include "engine/data/sparse_request.h"

namespace imp {

std::string_view name_of(DenseReason reason) noexcept {
  switch (reason) {
    case DenseReason::none:
      return "";
    case DenseReason::requested:
      return "requested";
    case DenseReason::keep_all:
      return "keep_all";
    case DenseReason::prompt_scores:
      return "prompt_scores";
    case DenseReason::media:
      return "media";
    case DenseReason::over_limit:
      return "over_limit";
    case DenseReason::below_threshold:
      return "below_threshold";
    case DenseReason::not_profitable:
      return "not_profitable";
    case DenseReason::failed:
      return "failed";
  }
  return "";
}

}  // namespace imp
