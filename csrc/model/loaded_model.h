// A model on a device of its own, ready to evaluate.
#pragma once

#include <atomic>
#include <memory>

#include "backend/make_backend.h"
#include "model/decoder.h"
#include "model/model.h"

namespace imp {

// Members are destroyed in the reverse order: nothing outlives what it uses.
struct LoadedModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<const Model> model;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<std::atomic<bool>> is_leased = std::make_unique<std::atomic<bool>>(false);
};

// The right to evaluate: whoever has it owns the model's scratch and activations. The model outlives it.
class ModelLease {
 public:
  // Throws InvalidArgument where another holds it; from any thread.
  explicit ModelLease(LoadedModel& model);
  ~ModelLease() { is_leased_.store(false, std::memory_order_release); }
  ModelLease(const ModelLease&) = delete;
  ModelLease& operator=(const ModelLease&) = delete;

 private:
  std::atomic<bool>& is_leased_;
};

// The file need not outlive the model.
LoadedModel load_on_device(const ModelFile& file, const DeviceOptions& device, const ModelOverrides& overrides,
                           const LoadOptions& options);

}  // namespace imp
