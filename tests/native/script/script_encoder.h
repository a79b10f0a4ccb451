// An encoder whose rows are a rule of the medium's digest, so that a script model reads a token in each cell.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/media_encoder.h"
#include "native/script/script_model.h"

namespace imp::testing {

// What the first pixel of a part makes the encoder do.
enum class ScriptFault : std::uint8_t { none, refused, throws, not_finite, faulting_device };

// Row i of a part holds the number that ScriptModel takes for the token of the cell. Each row takes as long as
// `media_cost` rows of a prompt.
class ScriptEncoder final : public MediaEncoder {
 public:
  // An advance() with its budget and what it used.
  using Piece = std::pair<int, int>;
  // The first byte of the digest of the medium, and the part.
  using Begun = std::pair<int, int>;

  explicit ScriptEncoder(const Script& script);
  const MediaFacts& facts() const noexcept override { return facts_; }
  void begin(const Media& media, int part) override;
  int advance(int n_rows) override;
  bool is_done() const noexcept override { return n_done_ == n_all_; }
  Rows encoding() const noexcept override;

  std::vector<Begun> begun;
  std::vector<Piece> pieces;
  std::int64_t n_rows_worked = 0;

 private:
  MediaFacts facts_;
  int cost_;
  ScriptFault fault_ = ScriptFault::none;
  int n_rows_ = 0;
  int n_all_ = 0;  // rows of work
  int n_done_ = 0;
  std::vector<float> values_;
};

}  // namespace imp::testing
