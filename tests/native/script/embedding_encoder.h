// An encoder whose rows are the embeddings of tokens: a model must draw as if these tokens were in the cells.
#pragma once

#include <cstdint>
#include <vector>

#include "model/loaded_model.h"
#include "model/media_encoder.h"

namespace imp::testing {

// The pixels of a part are its token ids, three bytes each, the lowest first.
class EmbeddingEncoder final : public MediaEncoder {
 public:
  static constexpr int kMaxRows = 64;

  explicit EmbeddingEncoder(LoadedModel& model);
  const MediaFacts& facts() const noexcept override { return facts_; }
  void begin(const Media& media, int part) override;
  int advance(int n_rows) override;
  bool is_done() const noexcept override { return n_done_ == static_cast<int>(tokens_.size()); }
  Rows encoding() const noexcept override;

 private:
  LoadedModel& model_;
  MediaFacts facts_;
  Rows rows_;
  std::vector<std::int32_t> tokens_;
  int n_done_ = 0;
};

}  // namespace imp::testing
