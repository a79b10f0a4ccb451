// Runs every operation of the Lanes of the including file, and stores each result with its name.
#include "lane_ops.h"

namespace proof {
namespace {

using namespace imp::cpu;

std::uint32_t canonical(std::uint32_t word) {
  return (word & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC00000U : word;
}

void put(LaneOutputs& out, const char* name, IntLanes x) {
  std::int32_t words[16];
  store_int(words, x);
  out.names[out.n_results] = name;
  for (int i = 0; i < 16; ++i) out.words[out.n_results][i] = static_cast<std::uint32_t>(words[i]);
  ++out.n_results;
}
void put(LaneOutputs& out, const char* name, Lanes x) {
  put(out, name, bits(x));
  for (std::uint32_t& word : out.words[out.n_results - 1]) word = canonical(word);
}
// For denormal operands, some instructions return zero and some the operand. All later instructions read it as zero.
void put_flushed(LaneOutputs& out, const char* name, Lanes x) {
  put(out, name, x);
  for (std::uint32_t& word : out.words[out.n_results - 1]) {
    if ((word & 0x7F800000U) == 0) word &= 0x80000000U;
  }
}
void put(LaneOutputs& out, const char* name, std::int32_t x) {
  put(out, name, broadcast_int(x));
}
void put(LaneOutputs& out, const char* name, Mask mask) {
  put(out, name, static_cast<std::int32_t>(mask_bits(mask)));
}
void put(LaneOutputs& out, const char* name, const std::uint16_t* words) {
  put(out, name, load_u16(words));
}

void put_floats(const LaneInputs& in, LaneOutputs& out) {
  const Lanes a = load(in.a), b = load(in.b), c = load(in.c);
  put(out, "zero", zero());
  put(out, "load", a);
  put(out, "load_partial", load_partial(in.a, in.n));
  float stored[16];
  store(stored, b);
  store_partial(stored, a, in.n);
  put(out, "store_partial", load(stored));
  put(out, "a + b", a + b);
  put(out, "a - b", a - b);
  put(out, "a * b", a * b);
  put(out, "a / b", a / b);
  put(out, "fma", fma(a, b, c));
  put(out, "sqrt", sqrt(a));
  put_flushed(out, "min", min(a, b));
  put_flushed(out, "max", max(a, b));
  put(out, "round_even", round_even(a));
  put(out, "less", less(a, b));
  put(out, "equal", equal(a, b));
  put(out, "equal itself", equal(a, a));
  put(out, "masks", less(a, b) & less(b, c));
  put(out, "select", select(less(a, b), b, c));
  put(out, "to_int", to_int(a));
  put(out, "sum", broadcast(sum(a)));
  put_flushed(out, "max_of", broadcast(max_of(a)));
  std::uint16_t halves[16];
  store_f16(halves, a);
  put(out, "store_f16", halves);
  store_f16(halves, a * broadcast(0x1p-110F));
  put(out, "store_f16 of small", halves);
  put(out, "load_f16", load_f16(in.halves));
  put(out, "broadcast_f16", broadcast_f16(in.halves[0]));
}

void put_integers(const LaneInputs& in, LaneOutputs& out) {
  const IntLanes i = load_int(in.i), j = load_int(in.j);
  put(out, "i + j", i + j);
  put(out, "i - j", i - j);
  put(out, "i * j", i * j);
  put(out, "i & j", i & j);
  put(out, "i | j", i | j);
  put(out, "i ^ j", i ^ j);
  put(out, "integer max", max(i, j));
  put(out, "integer less", less(i, j));
  put(out, "integer equal", equal(i, j));
  put(out, "integer select", select(less(i, j), i, j));
  put(out, "dot_halves", dot_halves(i, j));
  put(out, "shift_left", shift_left<13>(i));
  put(out, "shift_left by 0", shift_left<0>(i));
  put(out, "shift_right", shift_right<5>(i));
  put(out, "shift_right by 0", shift_right<0>(i));
  put(out, "shift_right_logical", shift_right_logical<31>(i));
  put(out, "shift_right_logical by 0", shift_right_logical<0>(i));
  put(out, "from_bits", from_bits(i));
  put(out, "from_int", from_int(i));
  put(out, "integer sum", sum(i));
  put(out, "integer max_of", max_of(i));
  put(out, "load_u16", load_u16(in.halves));
  put(out, "load_u8", load_u8(in.bytes));
  put(out, "load_i8", load_i8(reinterpret_cast<const std::int8_t*>(in.bytes)));
  std::uint8_t codes[16];  // without NaN codes
  for (int k = 0; k < 16; ++k)
    codes[k] = static_cast<std::uint8_t>(in.bytes[k] - ((in.bytes[k] & 0x7F) == 0x7F ? 1 : 0));
  put(out, "load_e4m3_scaled", load_e4m3_scaled(codes));
  std::int8_t pairs[16][2];
  __builtin_memcpy(pairs, in.halves, sizeof pairs);
  put(out, "load_i8_pairs", load_i8_pairs(pairs));
  std::uint16_t words[16];
  store_u16(words, i);
  put(out, "store_u16", words);
  std::uint8_t bytes[16];
  store_i8(reinterpret_cast<std::int8_t*>(bytes), j);
  put(out, "store_i8", load_u8(bytes));
  put(out, "swap_lanes 1", swap_lanes<1>(from_int(i)));
  put(out, "swap_lanes 2", swap_lanes<2>(from_int(i)));
  put(out, "swap_lanes 4", swap_lanes<4>(from_int(i)));
  put(out, "swap_lanes 8", swap_lanes<8>(from_int(i)));
  put(out, "lookup", lookup(in.a, i & broadcast_int(15)));
  put(out, "load_repeated 4", load_repeated<4>(in.i));
  put(out, "load_repeated 8", load_repeated<8>(in.i));
  put(out, "load_repeated 16", load_repeated<16>(in.i));
  put(out, "lookup_bytes", lookup_bytes(in.bytes, i & broadcast_int(0x0F0F0F0F)));
}

void put_all(const LaneInputs& in, LaneOutputs& out) {
  out.n_results = 0;
  put_floats(in, out);
  put_integers(in, out);
}

}  // namespace
}  // namespace proof
