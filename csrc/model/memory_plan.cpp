// The arithmetic of the memory plan.
#include "model/memory_plan.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/ceil_div.h"
#include "base/error.h"

namespace imp {
namespace {

// Sizes may come from a hostile file, so sums saturate instead of wrapping.
std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t total = 0;
  return __builtin_add_overflow(a, b, &total) ? std::numeric_limits<std::uint64_t>::max() : total;
}
std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t total = 0;
  return __builtin_mul_overflow(a, b, &total) ? std::numeric_limits<std::uint64_t>::max() : total;
}
std::uint64_t left_of(std::uint64_t from, std::uint64_t taken) {
  return from > taken ? from - taken : 0;
}

std::uint64_t blocks_for(std::uint64_t tokens, int block_tokens) {
  const auto size = static_cast<std::uint64_t>(block_tokens);
  return ceil_div(tokens, size);
}

// The part of a draft model that does not grow with the model's cache.
std::uint64_t draft_fixed(const MemoryRequest& request) {
  return request.draft ? sum(request.draft->weights_bytes, request.draft->kv_bytes.value_or(0)) : 0;
}

std::uint64_t vision_bytes(const MemoryRequest& request) {
  return sum(request.projector_bytes, request.media_bytes);
}

// What a block of the model's cache adds to that of the draft model, if nobody chose the size of that.
std::uint64_t draft_share(const MemoryRequest& request) {
  if (!request.draft || request.draft->kv_bytes) return 0;
  return std::min(request.kv_block_bytes / 4, request.draft->kv_block_bytes);
}

std::uint64_t choose_draft_blocks(const MemoryRequest& request, std::uint64_t n_blocks) {
  if (!request.draft) return 0;
  const std::uint64_t bytes = request.draft->kv_bytes.value_or(product(n_blocks, draft_share(request)));
  return std::clamp<std::uint64_t>(bytes / request.draft->kv_block_bytes, 1, std::numeric_limits<std::int32_t>::max());
}

std::uint64_t draft_kv_bytes(const MemoryRequest& request, std::uint64_t n_blocks) {
  return request.draft ? product(choose_draft_blocks(request, n_blocks), request.draft->kv_block_bytes) : 0;
}

// Of a block, in the caches of the model, of its draft head and of the draft model.
std::uint64_t block_bytes(const MemoryRequest& request) {
  return sum(sum(request.kv_block_bytes, request.head_block_bytes), draft_share(request));
}

std::uint64_t head_bytes(const MemoryRequest& request, std::uint64_t n_blocks) {
  return sum(request.head_bytes, product(n_blocks, request.head_block_bytes));
}

std::vector<MemoryItem> items_of(const MemoryRequest& request, std::uint64_t n_blocks, std::uint64_t state_bytes) {
  std::vector<MemoryItem> items = {{"weights", request.weights_bytes},
                                   {"kv", product(n_blocks, request.kv_block_bytes)}};
  if (request.draft) {
    items.push_back({"draft weights", request.draft->weights_bytes});
    items.push_back({"draft kv", draft_kv_bytes(request, n_blocks)});
  }
  if (request.head_bytes > 0) items.push_back({"head", head_bytes(request, n_blocks)});
  if (request.projector_bytes > 0) {
    items.push_back({"projector", request.projector_bytes});
    items.push_back({"media", request.media_bytes});
  }
  if (request.state_slot_bytes > 0) items.push_back({"state", state_bytes});
  items.push_back({"scratch", request.scratch_bytes});
  items.push_back({"logits", request.logits_bytes});
  items.push_back({"reserve", request.reserve_bytes});
  return items;
}

[[noreturn]] void refuse(const MemoryRequest& request, std::uint64_t n_blocks, std::uint64_t state_bytes) {
  const std::vector<MemoryItem> items = items_of(request, n_blocks, state_bytes);
  std::uint64_t needed = 0;
  for (const MemoryItem& item : items) needed = sum(needed, item.bytes);
  throw ResourceExhausted(Reason::NO_MEMORY, memory_text(items, request.budget_bytes),
                          {{"needed", std::to_string(needed)}, {"available", std::to_string(request.budget_bytes)}});
}

// The smallest acceptable cache: one block, or the requested context.
std::uint64_t least_blocks(const MemoryRequest& request) {
  if (!request.max_context) return 1;
  return blocks_for(static_cast<std::uint64_t>(*request.max_context), request.kv_block_tokens);
}

// `available` is for cache and states.
std::uint64_t choose_slots(const MemoryRequest& request, std::uint64_t available) {
  if (request.state_slot_bytes == 0) return 0;
  constexpr std::uint64_t kMinSlots = 2;
  const std::uint64_t running = kMinSlots * static_cast<std::uint64_t>(request.max_running);
  const auto snapshot_bytes = request.state_snapshot_bytes;
  const std::uint64_t wanted = sum(running, snapshot_bytes ? *snapshot_bytes / request.state_slot_bytes : running);
  const std::uint64_t cache = request.kv_bytes.value_or(product(least_blocks(request), block_bytes(request)));
  const std::uint64_t most = std::min(available / 4, left_of(available, cache)) / request.state_slot_bytes;
  return std::max(kMinSlots, std::min({wanted, most, std::uint64_t{std::numeric_limits<std::int32_t>::max()}}));
}

std::uint64_t choose_blocks(const MemoryRequest& request, std::uint64_t state_bytes, std::uint64_t available) {
  if (request.kv_bytes) return *request.kv_bytes / request.kv_block_bytes;
  if (request.is_for_models) return available / block_bytes(request);
  constexpr std::uint64_t kSequences = 4;
  const std::uint64_t beside = sum(sum(request.head_bytes, vision_bytes(request)), draft_fixed(request));
  const std::uint64_t fixed = sum(sum(request.weights_bytes, request.scratch_bytes), sum(state_bytes, beside));
  const std::uint64_t half = left_of(request.budget_bytes, fixed) / 2;
  const auto context = static_cast<std::uint64_t>(request.max_context.value_or(request.model_context));
  const std::uint64_t reasonable = std::max(half / block_bytes(request), least_blocks(request));
  return std::min(
      {kSequences * blocks_for(context, request.kv_block_tokens), reasonable, available / block_bytes(request)});
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes >> (10 * (unit + 1)) != 0) ++unit;
  if (unit == 0) return std::to_string(bytes) + " B";
  const std::uint64_t whole = bytes >> (10 * unit);
  const std::uint64_t rest = bytes - (whole << (10 * unit));
  const std::uint64_t tenths = (whole * 10) + ((rest >> (10 * (unit - 1))) * 10 + 1023) / 1024;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " " + kUnits[unit];
}

std::string memory_text(const std::vector<MemoryItem>& items, std::uint64_t budget_bytes) {
  std::string text;
  std::uint64_t total = 0;
  for (const MemoryItem& item : items) {
    text += (text.empty() ? "" : ", ") + item.name + " " + bytes_text(item.bytes);
    total = sum(total, item.bytes);
  }
  return text + "; in all " + bytes_text(total) + " of " + bytes_text(budget_bytes);
}

MemoryPlan plan_memory(const MemoryRequest& request) {
  IMP_CHECK(request.kv_block_bytes > 0 && request.kv_block_tokens > 0 && request.model_context > 0);
  const std::uint64_t fixed =
      sum(sum(sum(request.weights_bytes, request.scratch_bytes), sum(request.logits_bytes, request.reserve_bytes)),
          sum(sum(request.head_bytes, vision_bytes(request)), draft_fixed(request)));
  const std::uint64_t n_slots = choose_slots(request, left_of(request.budget_bytes, fixed));
  const std::uint64_t state_bytes = product(n_slots, request.state_slot_bytes);
  const std::uint64_t available = left_of(request.budget_bytes, sum(fixed, state_bytes));
  const std::uint64_t n_blocks =
      std::min<std::uint64_t>(choose_blocks(request, state_bytes, available), std::numeric_limits<std::int32_t>::max());
  const std::uint64_t least = least_blocks(request);
  const std::uint64_t kv_bytes = product(n_blocks, request.kv_block_bytes);
  if (request.kv_bytes && n_blocks < least) {
    const std::uint64_t n_tokens = product(n_blocks, static_cast<std::uint64_t>(request.kv_block_tokens));
    throw FieldInvalid("kv_bytes", std::to_string(*request.kv_bytes) + " hold " + std::to_string(n_tokens) +
                                       " tokens, max_context needs " + std::to_string(request.max_context.value_or(1)));
  }
  const std::uint64_t head_kv = product(n_blocks, request.head_block_bytes);
  const bool is_fixed = request.draft && request.draft->kv_bytes;
  const std::uint64_t more_kv = sum(head_kv, is_fixed ? 0 : draft_kv_bytes(request, n_blocks));
  if (sum(fixed, state_bytes) > request.budget_bytes || n_blocks < least || sum(kv_bytes, more_kv) > available) {
    refuse(request, std::max(n_blocks, least), state_bytes);
  }
  const std::uint64_t held = product(n_blocks, static_cast<std::uint64_t>(request.kv_block_tokens));
  const auto context = static_cast<std::uint64_t>(request.max_context.value_or(request.model_context));
  return {.items = items_of(request, n_blocks, state_bytes),
          .budget_bytes = request.budget_bytes,
          .n_blocks = static_cast<int>(n_blocks),
          .n_state_slots = static_cast<int>(n_slots),
          .n_draft_blocks = static_cast<int>(choose_draft_blocks(request, n_blocks)),
          .max_context = static_cast<int>(std::min(context, held))};
}

}  // namespace imp
