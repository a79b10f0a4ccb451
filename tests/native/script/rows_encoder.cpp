// Copies the rows when a part begins.
#include "native/script/rows_encoder.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "model/layer/row_views.h"

namespace imp::testing {
namespace {

MediaFacts facts_of(const ModelConfig& config) {
  constexpr std::int32_t kPlaceholder = 3;
  return {.width = config.media_width(),
          .max_rows = RowsEncoder::kMaxRows,
          .max_atomic_cells = config.has_atomic_media() ? RowsEncoder::kMaxRows : 0,
          .placeholder = kPlaceholder,
          .row_token = config.cell_token(kPlaceholder)};
}

}  // namespace

RowsEncoder::RowsEncoder(LoadedModel& model)
    : model_(model), facts_(facts_of(model.model->config())), rows_(model.backend->make_rows(kMaxRows, facts_.width)) {}

void RowsEncoder::begin(const Media& media, int part) {
  const MediaPart& given = media.parts[static_cast<std::size_t>(part)];
  std::vector<float> values(static_cast<std::size_t>(given.n_rows) * static_cast<std::size_t>(facts_.width));
  IMP_CHECK(given.pixels.size() == values.size() * sizeof(float));
  std::memcpy(values.data(), given.pixels.data(), given.pixels.size());
  encoding_ = first(rows_, static_cast<std::size_t>(given.n_rows));
  model_.backend->write_rows(values, encoding_);
  is_done_ = false;
}

int RowsEncoder::advance(int /*n_rows*/) {
  is_done_ = true;
  return 1;
}

}  // namespace imp::testing
