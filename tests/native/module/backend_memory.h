// Access to the memory of a backend of any device, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"

namespace imp::bindings {

// Sets every byte of scratch, because no result may depend on its old content.
void fill_scratch(Backend& backend, std::uint8_t value);
// Copies between the host and an address on the device, after all previous ops.
void write_device(Backend& backend, void* to, const void* from, std::size_t n_bytes);
void read_device(Backend& backend, void* to, const void* from, std::size_t n_bytes);
// All scratch memory, as addresses on the device.
std::span<std::byte> memory_of(const KvPool& pool);

}  // namespace imp::bindings
