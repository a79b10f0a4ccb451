// Computes the rows of a part.
#include "native/script/script_encoder.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace imp::testing {

ScriptEncoder::ScriptEncoder(const Script& script)
    : facts_{.width = kScriptWidth,
             .max_rows = script.media_rows,
             .max_atomic_cells = script.media_atomic,
             .placeholder = script.media_placeholder,
             .row_token = script.media_row_token},
      cost_(script.media_cost) {}

void ScriptEncoder::begin(const Media& media, int part) {
  const MediaPart& given = media.parts[static_cast<std::size_t>(part)];
  begun.emplace_back(static_cast<int>(media.digest.front()), part);
  fault_ = given.pixels.empty() ? ScriptFault::none : static_cast<ScriptFault>(given.pixels.front());
  if (fault_ == ScriptFault::refused) throw FieldInvalid("part", "the script refuses it");
  n_rows_ = given.n_rows;
  n_all_ = n_rows_ * cost_;
  n_done_ = 0;
  std::uint64_t digest = 0;
  std::memcpy(&digest, media.digest.data(), sizeof(digest));
  values_.clear();
  for (int row = 0; row < n_rows_; ++row) {
    const auto value = static_cast<float>(script_cell(digest, part, row));
    values_.insert(values_.end(), {value, -value});
  }
}

int ScriptEncoder::advance(int n_rows) {
  if (fault_ == ScriptFault::throws) throw InternalError(Reason::BUG, "the script makes this medium fail");
  if (fault_ == ScriptFault::faulting_device) throw DeviceError(Reason::DEVICE_FAULT, "the script breaks the device");
  const int n = std::min(std::max(1, n_rows), n_all_ - n_done_);
  n_done_ += n;
  pieces.emplace_back(n_rows, n);
  n_rows_worked += n;
  if (fault_ == ScriptFault::not_finite) values_.back() = std::numeric_limits<float>::quiet_NaN();
  return n;
}

Rows ScriptEncoder::encoding() const noexcept {
  return {.data = const_cast<float*>(values_.data()), .n_rows = n_rows_, .width = kScriptWidth, .stride = kScriptWidth};
}

}  // namespace imp::testing
