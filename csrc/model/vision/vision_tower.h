// A vision tower: turns a part of an image into rows of a decoder's input, piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/layer/layer_body.h"
#include "model/layer/workspace.h"
#include "model/media_encoder.h"
#include "model/vision/cell_projector.h"
#include "model/vision/patch_positions.h"
#include "model/vision/patches.h"
#include "model/vision/vision_plan.h"

namespace imp {

struct VisionOptions {
  int max_piece = 128;          // rows of a piece at most: with fewer, products wait for weights
  double decoder_row_cost = 0;  // products_per_row() of the decoder
  bool is_atomic = false;       // the decoder's rows of a part see each other
};

// What a tower computes of all rows before it goes on.
struct VisionStage {
  enum class Kind : std::uint8_t {
    embed,  // patches
    keys,   // K and V of a layer, of all patches
    layer,  // what reads them
    cells,  // a slice of the cells, by a projector
  } kind = Kind::embed;
  int index = 0;  // of the layer or the projector
};

// Evaluates a part in stages: the embedding of its patches; for each layer the keys and values of all patches, and then
// what reads them; the projection of its cells. A piece is some rows of a stage. A row depends on its input and on the
// layer's keys and values alone, so pieces of any size give the same bits.
class VisionTower final : public MediaEncoder {
 public:
  // Allocates all activations and reserves the backend's scratch. The model and the backend must outlive it.
  VisionTower(const VisionModel& model, Backend& backend, const VisionOptions& options);

  const MediaFacts& facts() const noexcept override { return facts_; }
  // The token that a prompt has in each cell, which only the tokenizer knows, and the one that the decoder reads there.
  // An engine reads them when it is made.
  void set_tokens(std::int32_t placeholder, std::int32_t row_token) noexcept {
    facts_.placeholder = placeholder;
    facts_.row_token = row_token;
  }
  void begin(const Media& media, int part) override;
  int advance(int n_rows) override;
  bool is_done() const noexcept override { return stage_ == stages_.size(); }
  Rows encoding() const noexcept override;

 private:
  const VisionStage& stage() const noexcept { return stages_[stage_]; }
  Layer layer() const;  // of the stage
  int rows_of_stage() const noexcept;
  double cost_of_row() const noexcept;  // in multiplications

  double run_piece(double budget);
  void run_stage(int n);
  void embed(int n);
  void begin_layer(int n);
  void append_keys(int n);
  void evaluate_layer(int n);
  void project(int n);
  Batch batch(int n);
  void take_stream(int n);
  void put_stream(Rows rows);

  const VisionConfig& config_;
  const VisionWeights& weights_;
  Backend& backend_;
  VisionOptions options_;
  MediaFacts facts_;
  std::vector<VisionStage> stages_;
  Patches patches_;
  PatchPositions positions_;
  std::vector<Rope> ropes_;
  Workspace workspace_;  // the piece determines the rows in use
  LayerBody body_;
  CellProjector projector_;
  Rows patch_rows_;  // [rows of a piece, 3 · patch²]
  Rows stream_;      // [patches, hidden]: the residual stream
  Rows encoding_;    // [cells, width]
  std::unique_ptr<KvPool> pool_;
  std::vector<std::int32_t> every_patch_, blocks_, ends_;
  std::vector<float> patch_values_;  // of a piece
  SequenceRows sequence_;

  const MediaPart* part_ = nullptr;
  Grid grid_;              // of its patches
  std::size_t stage_ = 0;  // in stages_
  int row_ = 0;            // the next one of the stage
};

// Throws ModelError(MODEL_UNSUPPORTED) if the backend cannot run such a tower.
VisionMemory vision_memory(const ModelFile& file, const VisionPlan& plan, const VisionOptions& options,
                           const Backend& backend);

}  // namespace imp
