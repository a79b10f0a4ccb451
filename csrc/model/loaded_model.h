// A model on its own device, ready to run.
#pragma once

#include <atomic>
#include <memory>

#include "backend/make_backend.h"
#include "model/decoder.h"
#include "model/draft_head.h"
#include "model/model.h"
#include "model/vision/model_vision.h"

namespace imp {

// Members are destroyed in reverse order, so none outlives what it uses.
struct LoadedModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<const Model> model;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<DraftHead> head;  // null: the model has none
  // A draft model that guesses for speculative decoding, or null.
  std::unique_ptr<const Model> draft;
  std::unique_ptr<Decoder> draft_decoder;
  std::unique_ptr<ModelVision> vision;  // null: it reads no images
  double draft_cost = 0;  // time of a draft step / time of a model step, estimated from the bytes they read
  std::unique_ptr<std::atomic<bool>> is_leased = std::make_unique<std::atomic<bool>>(false);
};

// The right to run a model: only its holder uses the model's scratch and activations. The model must outlive it.
class ModelLease {
 public:
  // Throws InvalidArgument if another one exists. Any thread may call it.
  explicit ModelLease(LoadedModel& model);
  ~ModelLease() { is_leased_.store(false, std::memory_order_release); }
  ModelLease(const ModelLease&) = delete;
  ModelLease& operator=(const ModelLease&) = delete;

 private:
  std::atomic<bool>& is_leased_;
};

// The files need not outlive the model. `draft`: the file of a draft model, or null.
LoadedModel load_on_device(const ModelFile& file, const DeviceOptions& device, const ModelOverrides& overrides,
                           const LoadOptions& options, const ModelFile* draft = nullptr);

}  // namespace imp
