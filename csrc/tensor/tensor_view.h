// A typed view of a tensor's bytes, which it does not own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace imp {

// dims[0] is the contiguous dimension (the length of a row); the others follow from inner to outer, and unused ones are
// 1. Rows follow each other without gaps, row_bytes(dtype, dims[0]) each. Whoever makes a view has checked that `data`
// has all of them.
struct TensorView {
  DType dtype = DType::F32;
  std::array<std::int64_t, 4> dims{1, 1, 1, 1};
  const std::byte* data = nullptr;

  std::int64_t n_rows() const noexcept { return dims[1] * dims[2] * dims[3]; }
  std::int64_t n_elements() const noexcept { return dims[0] * n_rows(); }
  std::int64_t n_bytes() const noexcept {
    const DTypeTraits& type = traits(dtype);
    return n_elements() / type.block_elements * type.block_bytes;
  }
};

}  // namespace imp
