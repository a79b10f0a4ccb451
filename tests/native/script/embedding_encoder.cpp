// Reads rows of the embedding, a few at a time.
#include "native/script/embedding_encoder.h"

#include <algorithm>
#include <span>

#include "model/layer/row_views.h"

namespace imp::testing {

EmbeddingEncoder::EmbeddingEncoder(LoadedModel& model)
    : model_(model),
      facts_{.width = model.model->config().media_width(), .max_rows = kMaxRows, .placeholder = 3, .row_token = 4},
      rows_(model.backend->make_rows(kMaxRows, facts_.width)) {}

void EmbeddingEncoder::begin(const Media& media, int part) {
  const std::vector<std::uint8_t>& bytes = media.parts[static_cast<std::size_t>(part)].pixels;
  tokens_.clear();
  for (std::size_t i = 0; i + 2 < bytes.size(); i += 3) {
    tokens_.push_back(bytes[i] | bytes[i + 1] << 8 | bytes[i + 2] << 16);
  }
  n_done_ = 0;
}

int EmbeddingEncoder::advance(int n_rows) {
  const int n = std::min(std::max(1, n_rows), static_cast<int>(tokens_.size()) - n_done_);
  const auto tokens = std::span(tokens_).subspan(static_cast<std::size_t>(n_done_), static_cast<std::size_t>(n));
  Rows out = first(rows_, tokens.size());
  out.data += n_done_ * out.stride;
  const ModelConfig& config = model_.model->config();
  // The further columns, which are added to the rows later, remain zero.
  model_.backend->embed(tokens, *model_.model->weights().embedding, config.embedding_scale,
                        columns(out, 0, config.hidden_size));
  n_done_ += n;
  return n;
}

Rows EmbeddingEncoder::encoding() const noexcept {
  return first(rows_, tokens_.size());
}

}  // namespace imp::testing
