// What tests do with a backend's memory beside its ops, whatever the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"

namespace imp::bindings {

// Sets every byte of scratch: no result may depend on what it held.
void fill_scratch(Backend& backend, std::uint8_t value);
// Between the host and an address on the device, after all ops before.
void write_device(Backend& backend, void* to, const void* from, std::size_t n_bytes);
void read_device(Backend& backend, void* to, const void* from, std::size_t n_bytes);
// All of it, as addresses on the device.
std::span<std::byte> memory_of(const KvPool& pool);

}  // namespace imp::bindings
