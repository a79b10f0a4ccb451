// Makes vectors of texts of the rows behind the last layer.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "model/config/model_config.h"
#include "model/layer/workspace.h"
#include "model/weights/weights.h"

namespace imp {

// A row for each text.
struct VectorRows {
  Rows pooled;                  // [texts, hidden]
  std::vector<Rows> projected;  // [texts, size of the projection]
  Rows dense;                   // [texts, hidden], with a score head that has such a product
  Rows score;                   // [texts, 1], with a score head

  void declare(const ModelConfig& config, Workspace& texts);
};

class VectorHead {
 public:
  // The configuration, the weights and the backend outlive it.
  VectorHead(const ModelConfig& config, const Weights& weights, Backend& backend, int max_texts);

  // Of Batch::pooled. `stream`: the rows of the batch; `free`: rows of the same size that it may overwrite.
  void compute(const Batch& batch, Rows stream, Rows free);

  Rows result() const noexcept;  // of the last batch

 private:
  RowRun run_of(const SequenceRows& sequence) const noexcept;
  void pool(Rows stream, Rows free);
  void project();
  void score();

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  Workspace workspace_;
  VectorRows rows_;
  std::vector<RowRun> runs_;
};

}  // namespace imp
