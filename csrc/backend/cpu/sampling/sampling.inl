// Passes over a row of logits: argmax, candidates, and integer weights.
#pragma once

#include "backend/cpu/lanes/math.h"
#include "backend/cpu/ops/cpu_ops.h"
#include "backend/scalar_math.h"

namespace imp::cpu {
namespace {

// As integers, negative floats are in reverse order. -0, which would come just below +0, is made equal to it.
inline IntLanes keys_of(Lanes x) {
  const IntLanes word = bits(x);
  const IntLanes key = word ^ (shift_right<31>(word) & broadcast_int(0x7FFFFFFF));
  return select(equal(key, broadcast_int(-1)), broadcast_int(0), key);
}

inline IntLanes lane_numbers() {
  std::int32_t numbers[kLanes];
  for (int i = 0; i < kLanes; ++i) numbers[i] = i;
  return load_int(numbers);
}

RowScan scan(const float* row, int n, LogitKey* chunk_greatest) {
  const IntLanes none = broadcast_int(INT32_MIN);
  const IntLanes numbers = lane_numbers();
  IntLanes best = none;
  IntLanes best_index = numbers;
  IntLanes magnitude = broadcast_int(0);
  for (int chunk = 0; chunk < n; chunk += kScanChunk) {
    const int end = chunk + kScanChunk < n ? chunk + kScanChunk : n;
    IntLanes greatest = none;
    for (int i = chunk; i < end; i += kLanes) {
      const Lanes x = load_up_to(row + i, end - i);
      magnitude = max(magnitude, bits(x) & broadcast_int(0x7FFFFFFF));
      const IntLanes key = select(less(numbers, broadcast_int(end - i)), keys_of(x), none);
      const Mask better = less(best, key);  // strictly less, so the earlier index stays
      best = select(better, key, best);
      best_index = select(better, numbers + broadcast_int(i), best_index);
      greatest = max(greatest, key);
    }
    if (chunk_greatest != nullptr) chunk_greatest[chunk / kScanChunk] = max_of(greatest);
  }
  const LogitKey greatest = max_of(best);
  std::int32_t keys[kLanes];
  std::int32_t indices[kLanes];
  store_int(keys, best);
  store_int(indices, best_index);
  std::int32_t index = INT32_MAX;
  for (int i = 0; i < kLanes; ++i) {
    if (keys[i] == greatest && indices[i] < index) index = indices[i];
  }
  return {greatest, index, max_of(magnitude) < 0x7F800000};
}

int gather(const float* row, int n, LogitKey least, std::int32_t* ids, float* values) {
  int count = 0;
  for (int i = 0; i < n; i += kLanes) {
    std::uint32_t chosen = ~mask_bits(less(keys_of(load_up_to(row + i, n - i)), broadcast_int(least)));
    chosen &= n - i < kLanes ? (1U << (n - i)) - 1U : 0xFFFFU;
    for (; chosen != 0; chosen &= chosen - 1U) {
      const int id = i + __builtin_ctz(chosen);
      ids[count] = id;
      values[count] = row[id];
      ++count;
    }
  }
  return count;
}

// A weight of 40 fractional bits as two integers: 2^24 · high + low. For numbers in [0, 1], so both steps are exact.
struct Weight {
  IntLanes high, low;
};

// The integer part of x in [0, 2^24].
inline Lanes floor_of(Lanes x) {
  const Lanes nearest = round_even(x);
  return nearest - select(less(x, nearest), broadcast(1.0F), zero());
}

inline Weight weight_of(Lanes value, Lanes greatest, Lanes temperature) {
  const Lanes scaled = exp((value - greatest) / temperature) * broadcast(0x1p16F);
  const Lanes high = floor_of(scaled);
  const Lanes low = floor_of((scaled - high) * broadcast(0x1p24F));
  return {to_int(high), to_int(low)};
}

void weigh(const float* values, int n, float greatest, float temperature, std::uint64_t* weights) {
  for (int i = 0; i < n; i += kLanes) {
    const Weight weight = weight_of(load_up_to(values + i, n - i), broadcast(greatest), broadcast(temperature));
    std::int32_t high[kLanes];
    std::int32_t low[kLanes];
    store_int(high, weight.high);
    store_int(low, weight.low);
    for (int j = 0; j < kLanes && i + j < n; ++j) {
      weights[i + j] = (static_cast<std::uint64_t>(high[j]) << 24) + static_cast<std::uint64_t>(low[j]);
    }
  }
}

// No lane's sum exceeds 32 bits in a block: it has 64 addends of at most 2^16 and below 2^24.
void block_masses(const float* values, int n, float greatest, float temperature, std::uint64_t* masses) {
  static_assert(kMassBlock / kLanes == 64);
  const IntLanes numbers = lane_numbers();
  const IntLanes none = broadcast_int(0);
  for (int block = 0; block < n; block += kMassBlock) {
    const int end = block + kMassBlock < n ? block + kMassBlock : n;
    IntLanes high = none;
    IntLanes low = none;
    for (int i = block; i < end; i += kLanes) {
      const Weight weight = weight_of(load_up_to(values + i, end - i), broadcast(greatest), broadcast(temperature));
      const Mask exists = less(numbers, broadcast_int(end - i));
      high = high + select(exists, weight.high, none);
      low = low + select(exists, weight.low, none);
    }
    std::int32_t highs[kLanes];
    std::int32_t lows[kLanes];
    store_int(highs, high);
    store_int(lows, low);
    std::uint64_t mass = 0;
    for (int i = 0; i < kLanes; ++i) {
      mass += (static_cast<std::uint64_t>(highs[i]) << 24) + static_cast<std::uint64_t>(lows[i]);
    }
    masses[block / kMassBlock] = mass;
  }
}

void surprisals(const std::uint64_t* weights, int n, double total, double* out) {
  for (int i = 0; i < n; ++i) out[i] = -log_of(static_cast<double>(weights[i]) / total);
}

}  // namespace
}  // namespace imp::cpu
