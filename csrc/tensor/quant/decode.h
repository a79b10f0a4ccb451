// Decodes blocks by groups: kGroups runs of equal length that decode independently.
#pragma once

#include "base/device_code.h"

namespace imp::quant {

// Groups [begin, end) of a block; `out` is where the block's first element belongs.
template <class Block>
IMP_DEVICE_CODE void decode_groups(const Block& block, int begin, int end, float* out) noexcept {
  if constexpr (Block::kGroups == 1) {
    decode(block, out);
  } else {
    decode(block, begin, end, out);
  }
}

}  // namespace imp::quant
