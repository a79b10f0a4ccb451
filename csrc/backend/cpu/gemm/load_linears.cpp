// One loop over parts of all weights, so that small weights use all threads too.
#include "backend/cpu/gemm/load_linears.h"

#include <algorithm>
#include <utility>

#include "backend/cpu/gemm/layouts.h"
#include "backend/loading.h"
#include "base/ceil_div.h"
#include "base/error.h"
#include "base/first_error.h"

namespace imp::cpu {
namespace {

// Bytes read at a time. With the packed output they fit a core's L2 cache.
constexpr std::int64_t kBufferBytes = std::int64_t{1} << 18;

// A weight and its destination. Rows are as long as in the file in every layout.
struct Target {
  const LinearRequest* request;
  std::shared_ptr<std::byte> bytes;

  const WeightSource& source() const noexcept { return request->source; }
  std::int64_t row_size() const noexcept { return *row_bytes(source().problem.weight, source().problem.k); }
  std::int64_t n_bytes() const noexcept {
    return static_cast<std::int64_t>(packed_bytes(source().problem, request->plan.layout));
  }
  bool is_packed_here() const noexcept { return !source().read_packed && request->plan.layout != WeightLayout::file; }
  // A part that can be read by itself: a panel of rows, or a range of a packed cache file.
  std::int64_t unit_bytes() const noexcept {
    return source().read_packed ? kPackedRangeBytes : kPanelRows * row_size();
  }
  // Whole panels that fit a buffer.
  std::int64_t buffer_rows() const noexcept {
    return std::max(kBufferBytes / unit_bytes(), std::int64_t{1}) * kPanelRows;
  }
};

// Bytes of a weight per task.
struct Piece {
  const Target* target;
  std::int64_t begin, end;

  // The rows of the panel that exist; padding rows do not.
  std::int64_t first_row() const noexcept { return begin / target->row_size(); }
  std::int64_t n_rows() const noexcept {
    return std::min(end / target->row_size(), target->source().problem.n) - first_row();
  }
  std::int64_t file_bytes() const noexcept {
    return std::min(end, target->source().problem.n * target->row_size()) - begin;
  }
};

// A task's units begin in one huge page. If two threads first wrote to the same page, the system would clear a page for
// each and discard one.
void cut(const Target& target, std::vector<Piece>& pieces) {
  constexpr auto kPage = static_cast<std::int64_t>(Arena::kHugePageBytes);
  const std::int64_t unit = target.unit_bytes(), end = target.n_bytes();
  const auto first_in_page =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(target.bytes.get()) % Arena::kHugePageBytes);
  for (std::int64_t begin = 0; begin < end;) {
    const std::int64_t left_in_page = kPage - (first_in_page + begin) % kPage;
    const std::int64_t next = std::min(begin + round_up(left_in_page, unit), end);
    pieces.push_back({&target, begin, next});
    begin = next;
  }
}

void pack(const Piece& piece, std::byte* buffer) {
  const Target& target = *piece.target;
  const GemmProblem& problem = target.source().problem;
  const std::int64_t row_size = target.row_size(), n_rows = piece.n_rows();
  std::byte* const to = target.bytes.get() + piece.begin;
  for (std::int64_t done = 0; done < n_rows; done += target.buffer_rows()) {
    const std::int64_t rows = std::min(target.buffer_rows(), n_rows - done);
    target.source().read(piece.first_row() + done, rows, buffer);
    for (std::int64_t row = 0; row < rows; row += kPanelRows) {
      pack_panel(problem.weight, buffer + row * row_size, static_cast<int>(std::min(kPanelRows, rows - row)), problem.k,
                 to + (done + row) * row_size);
    }
  }
}

void load(const Piece& piece, std::byte* buffer) {
  const Target& target = *piece.target;
  std::byte* const to = target.bytes.get() + piece.begin;
  if (target.source().read_packed) {
    target.source().read_packed(static_cast<std::uint64_t>(piece.begin),
                                {to, static_cast<std::size_t>(piece.end - piece.begin)});
  } else if (target.is_packed_here()) {
    pack(piece, buffer);
  } else {
    target.source().read(piece.first_row(), piece.n_rows(), to);
  }
}

}  // namespace

std::vector<std::unique_ptr<CpuLinear>> load_cpu_linears(std::span<const LinearRequest> requests, Arena& arena,
                                                         ThreadPool& pool, const BytesRead& progress) {
  std::vector<Target> targets;
  std::int64_t buffer_bytes = 0;
  for (const LinearRequest& request : requests) {
    const GemmProblem& problem = request.source.problem;
    require_shape(request.source);
    IMP_CHECK(has_layout(problem.weight, request.plan.layout));
    targets.push_back({&request, arena.allocate(packed_bytes(problem, request.plan.layout))});
    const Target& target = targets.back();
    if (target.is_packed_here()) {
      buffer_bytes = std::max(buffer_bytes, std::min(target.buffer_rows(), problem.n) * target.row_size());
    }
  }
  std::vector<Piece> pieces;
  for (const Target& target : targets) cut(target, pieces);
  IMP_CHECK(pieces.size() < static_cast<std::size_t>(kAnyRows));

  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(pool.n_threads()),
                                              std::vector<std::byte>(static_cast<std::size_t>(buffer_bytes)));
  FirstError error;
  ReadProgress read(progress);
  pool.run(static_cast<int>(pieces.size()), [&](int task, int thread) {
    error.guard([&] {
      const Piece& piece = pieces[static_cast<std::size_t>(task)];
      load(piece, buffers[static_cast<std::size_t>(thread)].data());
      read.add(piece.file_bytes(), thread);
    });
  });
  error.rethrow();
  read.report();

  std::vector<std::unique_ptr<CpuLinear>> loaded;
  for (Target& target : targets) {
    const LinearRequest& request = *target.request;
    loaded.push_back(std::make_unique<CpuLinear>(request.source.problem, request.plan, std::move(target.bytes)));
  }
  return loaded;
}

std::unique_ptr<CpuLinear> load_cpu_linear(WeightSource source, GemmPlan plan, Arena& arena, ThreadPool& pool) {
  const LinearRequest request{std::move(source), std::move(plan)};
  return std::move(load_cpu_linears({&request, 1}, arena, pool, {}).front());
}

}  // namespace imp::cpu
