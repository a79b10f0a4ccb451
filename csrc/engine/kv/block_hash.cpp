// SipHash-2-4-128, and block keys made with it.
#include "engine/kv/block_hash.h"

#include <bit>
#include <cstring>
#include <random>

namespace imp {
namespace {

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  // The constants are "somepseudorandomlygeneratedbytes"; 0xee marks the 128-bit output.
  explicit SipState(const HashSecret& secret) noexcept
      : v0(secret.low ^ 0x736f6d6570736575U),
        v1(secret.high ^ 0x646f72616e646f6dU ^ 0xeeU),
        v2(secret.low ^ 0x6c7967656e657261U),
        v3(secret.high ^ 0x7465646279746573U) {}

  void rounds(int n) noexcept {
    for (int i = 0; i < n; ++i) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1;
      v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  }

  void word(std::uint64_t m) noexcept {
    v3 ^= m;
    rounds(2);
    v0 ^= m;
  }
};

// Words are little-endian.
std::uint64_t load_word(const std::byte* bytes, std::size_t n) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, n);
  return word;
}

// The state already holds `n_before` bytes, a multiple of a word.
BlockKey finish(SipState& state, std::size_t n_before, std::span<const std::byte> bytes) noexcept {
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) state.word(load_word(bytes.data() + at, 8));
  const std::uint64_t length = static_cast<std::uint64_t>(n_before + bytes.size()) << 56U;
  state.word(length | load_word(bytes.data() + at, bytes.size() - at));
  BlockKey key;
  state.v2 ^= 0xeeU;
  state.rounds(4);
  key.low = state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
  state.v1 ^= 0xddU;
  state.rounds(4);
  key.high = state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
  return key;
}

}  // namespace

static_assert(std::endian::native == std::endian::little);

BlockKey sip_hash(const HashSecret& secret, std::span<const std::byte> bytes) noexcept {
  SipState state(secret);
  return finish(state, 0, bytes);
}

CacheScope hashed_scope(const HashSecret& secret, std::string_view scope, std::string_view tenant) noexcept {
  return {.key = sip_hash(secret, std::as_bytes(std::span(scope))),
          .tenant = sip_hash(secret, std::as_bytes(std::span(tenant)))};
}

BlockHash keyed_block_hash(const HashSecret& secret) {
  return [secret](const BlockKey& parent, std::span<const std::int32_t> ids) {
    SipState state(secret);
    state.word(parent.low);
    state.word(parent.high);
    return finish(state, sizeof parent, std::as_bytes(ids));
  };
}

HashSecret random_secret() {
  std::random_device device;
  const auto word = [&device] { return static_cast<std::uint64_t>(device()) << 32U | device(); };
  return {word(), word()};
}

}  // namespace imp
