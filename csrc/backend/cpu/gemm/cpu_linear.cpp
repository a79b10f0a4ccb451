// Loading: rows are read and packed piece by piece, the pieces spread over the pool.
#include "backend/cpu/gemm/cpu_linear.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/gemm/layouts.h"
#include "base/error.h"

namespace imp::cpu {

namespace {

// Rows read at a time: whole panels, about this many bytes.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

void require_shape(const WeightSource& source) {
  const GemmProblem& problem = source.problem;
  const auto size = row_bytes(problem.weight, problem.k);
  // Sums of sizes stay far from overflow below this; the loader of checkpoints has a lower limit of its own.
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;
  if (problem.n < 1 || problem.k < 1 || !size || *size > kMaxBytes || problem.n > kMaxBytes / *size) {
    throw ModelError(Reason::MODEL_SHAPE,
                     source.name + ": shape [" + std::to_string(problem.n) + ", " + std::to_string(problem.k) +
                         "] of " + std::string(traits(problem.weight).name) + ", expected rows of whole blocks");
  }
}

// The first exception of a parallel loop, whose body must not throw.
class FirstError {
 public:
  template <class Body>
  void guard(const Body& body) noexcept {
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

CpuLinear::CpuLinear(const GemmProblem& problem, GemmPlan plan, std::shared_ptr<std::byte> bytes)
    : problem_(problem),
      plan_(std::move(plan)),
      row_bytes_(static_cast<std::size_t>(*imp::row_bytes(problem.weight, problem.k))),
      n_bytes_(packed_bytes(problem, plan_.layout)),
      bytes_(std::move(bytes)) {}

void CpuLinear::read_row(std::int64_t row, std::byte* out) const noexcept {
  unpack_row(problem_, plan_.layout, bytes_.get(), row, out);
}

void CpuLinear::decode_row(std::int64_t row, std::byte* scratch, float* out) const noexcept {
  read_row(row, scratch);
  const DTypeTraits& type = traits(problem_.weight);
  type.dequantize(scratch, out, problem_.k / type.block_elements);
}

std::unique_ptr<CpuLinear> load_cpu_linear(const WeightSource& source, GemmPlan plan, Arena& arena, ThreadPool& pool) {
  require_shape(source);
  const GemmProblem& problem = source.problem;
  IMP_CHECK(has_layout(problem.weight, plan.layout));
  const std::int64_t row_size = *row_bytes(problem.weight, problem.k);
  const std::int64_t piece = std::max(kPieceBytes / row_size / kPanelRows, std::int64_t{1}) * kPanelRows;
  const std::int64_t n_pieces = (problem.n + piece - 1) / piece;
  const bool packs = plan.layout != WeightLayout::file;
  const std::shared_ptr<std::byte> bytes = arena.allocate(packed_bytes(problem, plan.layout));

  const auto buffer_bytes = static_cast<std::size_t>(packs ? std::min(piece, problem.n) * row_size : 0);
  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(pool.n_threads()),
                                              std::vector<std::byte>(buffer_bytes));
  FirstError error;
  IMP_CHECK(n_pieces < kAnyRows);
  pool.run(static_cast<int>(n_pieces), [&](int task, int thread) {
    error.guard([&] {
      const std::int64_t first = task * piece;
      const std::int64_t rows = std::min(piece, problem.n - first);
      std::byte* const to = bytes.get() + first * row_size;
      if (!packs) return source.read(first, rows, to);
      std::byte* const buffer = buffers[static_cast<std::size_t>(thread)].data();
      source.read(first, rows, buffer);
      for (std::int64_t row = 0; row < rows; row += kPanelRows) {
        pack_panel(problem.weight, buffer + row * row_size, static_cast<int>(std::min(kPanelRows, rows - row)),
                   problem.k, to + row * row_size);
      }
    });
  });
  error.rethrow();
  return std::make_unique<CpuLinear>(problem, std::move(plan), bytes);
}

}  // namespace imp::cpu
