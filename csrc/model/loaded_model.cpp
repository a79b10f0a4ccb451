// Device, model, decoder, in this order.
#include "model/loaded_model.h"

namespace imp {

LoadedModel load_on_device(const ModelFile& file, const DeviceOptions& device, const ModelOverrides& overrides,
                           const LoadOptions& options) {
  LoadedModel loaded;
  loaded.backend = make_backend(device);
  loaded.model = load_model(file, *loaded.backend, overrides, options);
  loaded.decoder = std::make_unique<Decoder>(*loaded.model, *loaded.backend, options.limits);
  return loaded;
}

}  // namespace imp
