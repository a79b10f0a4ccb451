// An encoder whose pixels are its rows: a model must read in the cells what a test gives it.
#pragma once

#include "model/loaded_model.h"
#include "model/media_encoder.h"

namespace imp::testing {

// The pixels of a part are its rows, in float32.
class RowsEncoder final : public MediaEncoder {
 public:
  static constexpr int kMaxRows = 64;

  explicit RowsEncoder(LoadedModel& model);
  const MediaFacts& facts() const noexcept override { return facts_; }
  void begin(const Media& media, int part) override;
  int advance(int n_rows) override;
  bool is_done() const noexcept override { return is_done_; }
  Rows encoding() const noexcept override { return encoding_; }

 private:
  LoadedModel& model_;
  MediaFacts facts_;
  Rows rows_;
  Rows encoding_;
  bool is_done_ = false;
};

}  // namespace imp::testing
