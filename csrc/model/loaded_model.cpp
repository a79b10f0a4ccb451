// Makes device, model and decoder, in this order.
#include "model/loaded_model.h"

#include "base/error.h"

namespace imp {

LoadedModel load_on_device(const ModelFile& file, const DeviceOptions& device, const ModelOverrides& overrides,
                           const LoadOptions& options) {
  LoadedModel loaded;
  loaded.backend = make_backend(device);
  loaded.model = load_model(file, *loaded.backend, overrides, options);
  loaded.decoder = std::make_unique<Decoder>(*loaded.model, *loaded.backend, options.limits);
  return loaded;
}

ModelLease::ModelLease(LoadedModel& model) : is_leased_(*model.is_leased) {
  if (!is_leased_.exchange(true, std::memory_order_acquire)) return;
  throw FieldInvalid("model", "an engine runs on it, and a model serves one engine at a time; load it once for each");
}

}  // namespace imp
