// A vision tower: turns a tile of an image into rows of a decoder's input, piece by piece.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/layer/layer_body.h"
#include "model/layer/workspace.h"
#include "model/media_encoder.h"
#include "model/vision/patches.h"
#include "model/vision/vision_plan.h"

namespace imp {

struct VisionOptions {
  int max_piece = 64;           // rows of a piece at most
  double decoder_row_cost = 0;  // products_per_row() of the decoder
};

// The buffers of a piece apart from those of a layer.
struct VisionRows {
  Rows patches;  // [rows, 3 · patch²]
  Rows cells;    // [rows, hidden · shuffle²]

  void declare(const VisionConfig& config, Workspace& workspace);
};

// Evaluates a tile in stages: the embedding of its patches; for each layer the keys and values of all patches, and then
// what reads them; the projection of its cells. A piece is some rows of a stage. A row depends on its input and on the
// layer's keys and values alone, so pieces of any size give the same bits.
class VisionTower final : public MediaEncoder {
 public:
  // Allocates all activations and reserves the backend's scratch. The model and the backend must outlive it.
  VisionTower(const VisionModel& model, Backend& backend, const VisionOptions& options);

  const MediaFacts& facts() const noexcept override { return facts_; }
  // The token of a cell: only the tokenizer knows it. An engine reads it when it is made.
  void set_placeholder(std::int32_t token) noexcept { facts_.placeholder = facts_.row_token = token; }
  void begin(const Media& media, int part) override;
  int advance(int n_rows) override;
  bool is_done() const noexcept override { return stage_ == n_stages(); }
  Rows encoding() const noexcept override { return encoding_; }

 private:
  int n_layers() const noexcept { return config_.layers.n_layers; }
  int n_stages() const noexcept { return 2 * n_layers() + 2; }
  bool embeds() const noexcept { return stage_ == 0; }
  bool projects() const noexcept { return stage_ == n_stages() - 1; }
  bool writes_keys() const noexcept { return stage_ % 2 == 1 && !projects(); }
  Layer layer() const;  // of the stage
  int rows_of_stage() const noexcept { return projects() ? config_.n_cells() : config_.n_patches(); }
  double cost_of_row() const noexcept;  // in multiplications

  double run_piece(double budget);
  void embed(int n);
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
  Patches patches_;
  Workspace workspace_;  // the piece determines the rows in use
  LayerBody body_;
  VisionRows rows_;
  Rows stream_;    // [patches, hidden]: the residual stream
  Rows encoding_;  // [cells, width]
  std::unique_ptr<KvPool> pool_;
  std::vector<std::int32_t> every_patch_, blocks_, ends_;
  std::vector<float> patch_values_;  // of a piece
  std::vector<std::int32_t> sources_;
  SequenceRows sequence_;

  const MediaPart* part_ = nullptr;
  int stage_ = 0;
  int row_ = 0;  // the next one of the stage
};

// Throws ModelError(MODEL_UNSUPPORTED) if the backend cannot run such a tower.
VisionMemory vision_memory(const ModelFile& file, const VisionPlan& plan, const VisionOptions& options,
                           const Backend& backend);

}  // namespace imp
