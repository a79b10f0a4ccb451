// Runs kernels on arrays. Compiled for the real device and for the emulated one.
#include "native/gpu/gemm_trials.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>

#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/runtime.h"
#include "backend/cuda/gemm/activation_rows.h"
#include "backend/cuda/gemm/cublaslt/cublaslt.h"
#include "backend/cuda/gemm/kernel_list.h"
#include "backend/cuda/gemm/layouts.h"
#include "backend/cuda/gemm/tiles.h"
#include "native/gpu/thread_order.h"

namespace imp::cuda {
namespace {

void require_ok(const Status& status) {
  if (!status.is_ok()) throw std::runtime_error(status.name);
}

class OpenStream {
 public:
  explicit OpenStream(unsigned thread_order) {
    require_ok(make_stream(stream_));
    set_thread_order(stream_, thread_order);
  }
  ~OpenStream() { free_stream(stream_); }
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;

  Stream& operator*() noexcept { return stream_; }
  void finish() {
    synchronize(stream_);
    require_ok(stream_.first_failure());
  }

 private:
  Stream stream_;
};

// Device memory between two guards.
class Guarded {
 public:
  Guarded(OpenStream& stream, const char* what, std::size_t n_bytes, std::uint8_t filled_with = 0)
      : stream_(stream), what_(what), n_bytes_(n_bytes), memory_(allocate_on_device(n_bytes + 2 * kGuardBytes)) {
    fill(*stream_, memory_.get(), kGuard, n_bytes + 2 * kGuardBytes);
    fill(*stream_, data(), filled_with, n_bytes);
  }
  Guarded(OpenStream& stream, const char* what, std::span<const std::byte> bytes)
      : Guarded(stream, what, bytes.size()) {
    held_.assign(bytes.begin(), bytes.end());
    if (n_bytes_ > 0) copy_to_device(*stream_, data(), held_.data(), n_bytes_);
    stream_.finish();
  }

  std::byte* data() const { return memory_.get() + kGuardBytes; }
  // Returns the content, after a check that no kernel wrote outside of it, or into it if it is an input.
  std::vector<std::byte> read() const {
    std::vector<std::byte> all(n_bytes_ + 2 * kGuardBytes);
    copy_to_host(*stream_, all.data(), memory_.get(), all.size());
    stream_.finish();
    for (std::size_t i = 0; i < kGuardBytes; ++i) {
      if (all[i] != std::byte{kGuard} || all[all.size() - 1 - i] != std::byte{kGuard}) {
        throw std::runtime_error(std::string("stray write beside the ") + what_);
      }
    }
    all = {all.begin() + kGuardBytes, all.end() - kGuardBytes};
    if (!held_.empty() && all != held_) throw std::runtime_error(std::string("stray write into the ") + what_);
    return all;
  }

 private:
  static constexpr std::size_t kGuardBytes = 256;
  static constexpr std::uint8_t kGuard = 0xC7;

  OpenStream& stream_;
  const char* what_;
  std::size_t n_bytes_;
  std::shared_ptr<std::byte> memory_;
  std::vector<std::byte> held_;
};

GemmKernel kernel_of(const GemmTrial& trial, const GemmProblem& problem, KernelLibrary& cublaslt) {
  DeviceFacts facts;
  require_ok(find_device(facts));
  facts.caps.cublaslt = &cublaslt;
  for (const GemmKernel& kernel : kernel_list()) {
    if (kernel.name != trial.kernel) continue;
    if (!kernel.any_weight && kernel.weight != problem.weight) throw std::invalid_argument("another weight type");
    if (const std::string reason = refusal(kernel, problem, facts.caps); !reason.empty())
      throw std::invalid_argument(reason);
    return kernel;
  }
  throw std::invalid_argument("no kernel " + trial.kernel);
}

std::vector<std::byte> pack(const GemmProblem& problem, WeightLayout layout, std::span<const std::byte> file) {
  const auto expected = static_cast<std::size_t>(problem.n * row_bytes(problem.weight, problem.k).value_or(-1));
  if (file.size() != expected) throw std::invalid_argument("not the bytes of [n, k]");
  std::vector<std::byte> packed(packed_bytes(problem, layout), std::byte{0x55});
  pack_rows(problem, layout, 0, problem.n, file.data(), packed.data());
  return packed;
}

template <class T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
  return std::as_bytes(values);
}

// A term and the memory it points to.
class TrialTerm {
 public:
  TrialTerm(OpenStream& stream, const GemmTrial& trial, const GemmTrialTerm& term, WeightLayout layout)
      : m_(static_cast<std::size_t>(trial.m)),
        fill_(trial.fill),
        out_(stream, "output", m_ * static_cast<std::size_t>(term.n + kGap) * sizeof(float), trial.fill),
        bias_(stream, "bias", bytes_of(term.bias)) {
    std::vector<const std::byte*> experts;
    for (const std::span<const std::byte> file : term.weights) {
      experts.push_back(nullptr);
      if (file.empty()) continue;
      weights_.push_back(
          std::make_unique<Guarded>(stream, "weights", pack({trial.weight, term.n, trial.k}, layout, file)));
      experts.back() = weights_.back()->data();
    }
    table_ =
        std::make_unique<Guarded>(stream, "table of experts", bytes_of(std::span<const std::byte* const>(experts)));
    launched_ = {.weight = trial.n_experts == 0 ? experts.at(0) : nullptr,
                 .experts = trial.n_experts > 0 ? reinterpret_cast<const std::byte* const*>(table_->data()) : nullptr,
                 .bias = term.bias.empty() ? nullptr : reinterpret_cast<const float*>(bias_.data()),
                 .out = reinterpret_cast<float*>(out_.data()),
                 .out_stride = term.n + kGap,
                 .n = term.n};
  }

  const GemmLaunchTerm& launched() const { return launched_; }
  std::vector<float> read() const {
    for (const auto& weight : weights_) static_cast<void>(weight->read());
    static_cast<void>(table_->read()), static_cast<void>(bias_.read());
    const std::vector<std::byte> bytes = out_.read();
    const auto n = static_cast<std::size_t>(launched_.n), row_size = (n + kGap) * sizeof(float);
    std::vector<float> values(m_ * n);
    for (std::size_t row = 0; row < m_; ++row) {
      std::memcpy(values.data() + row * n, bytes.data() + row * row_size, n * sizeof(float));
      for (std::size_t i = n * sizeof(float); i < row_size; ++i) {
        if (bytes[row * row_size + i] != std::byte{fill_}) {
          throw std::runtime_error("stray write between the rows of the output");
        }
      }
    }
    return values;
  }

 private:
  static constexpr int kGap = 3;  // floats between the rows

  std::size_t m_;
  std::uint8_t fill_;
  Guarded out_, bias_;
  std::vector<std::unique_ptr<Guarded>> weights_;
  std::unique_ptr<Guarded> table_;
  GemmLaunchTerm launched_;
};

}  // namespace

std::vector<std::vector<float>> run_gemm(const GemmTrial& trial) {
  CublasLt cublaslt(trial.cublaslt);
  OpenStream stream(trial.thread_order);
  (*stream).cublaslt = &cublaslt;
  (*stream).n_processors = trial.n_processors;
  const GemmKernel kernel =
      kernel_of(trial, {trial.weight, trial.terms.at(0).n, trial.k, trial.n_experts > 0}, cublaslt);
  std::size_t scratch_bytes = 0;
  for (const GemmTrialTerm& term : trial.terms) {
    const GemmProblem problem = {trial.weight, term.n, trial.k};
    scratch_bytes += kernel.scratch_bytes(problem, trial.m);
    if (kernel.prepare != nullptr) kernel.prepare(problem, &*stream);
  }
  const Guarded x(stream, "input", trial.x), begins(stream, "experts' rows", bytes_of(trial.begins)),
      sources(stream, "sources", bytes_of(trial.sources));
  const Guarded scratch(stream, "scratch", scratch_bytes, trial.fill);
  std::vector<std::unique_ptr<TrialTerm>> terms;
  std::vector<GemmLaunchTerm> launched;
  for (const GemmTrialTerm& term : trial.terms) {
    terms.push_back(std::make_unique<TrialTerm>(stream, trial, term, kernel.layout));
    launched.push_back(terms.back()->launched());
  }
  kernel.launch({.stream = &*stream,
                 .terms = launched,
                 .weight_type = trial.weight,
                 .fusion = trial.fusion,
                 .x = x.data(),
                 .x_stride = trial.x_stride,
                 .m = trial.m,
                 .k = trial.k,
                 .n_experts = trial.n_experts,
                 .begins = reinterpret_cast<const std::int32_t*>(begins.data()),
                 .sources = trial.sources.empty() ? nullptr : reinterpret_cast<const std::int32_t*>(sources.data()),
                 .scratch = scratch.data()});
  stream.finish();
  for (const Guarded* buffer : {&x, &begins, &sources, &scratch}) static_cast<void>(buffer->read());
  std::vector<std::vector<float>> results;
  for (const auto& term : terms) results.push_back(term->read());
  return results;
}

std::vector<std::byte> run_preparation(const PreparationTrial& trial) {
  constexpr int kGap = 5;  // floats between the rows: NaN
  const std::int64_t stride = trial.k + kGap;
  std::vector<float> rows(static_cast<std::size_t>(trial.m * stride), std::numeric_limits<float>::quiet_NaN());
  for (int row = 0; row < trial.m; ++row) {
    std::copy_n(trial.x.data() + std::ptrdiff_t{row} * trial.k, trial.k, rows.data() + row * stride);
  }
  OpenStream stream(trial.thread_order);
  const Guarded x(stream, "input", bytes_of(std::span<const float>(rows)));
  const auto n_bytes = static_cast<std::size_t>(trial.m * activation_row_bytes(trial.format, trial.k));
  const Guarded out(stream, "prepared rows", n_bytes, 0xFF);
  prepare_rows(*stream, {reinterpret_cast<float*>(x.data()), trial.m, trial.k, stride}, trial.format, out.data());
  stream.finish();
  static_cast<void>(x.read());
  return out.read();
}

std::vector<std::byte> pack_tiles(DType weight, std::int64_t n, std::int64_t k, std::span<const std::byte> file) {
  const GemmProblem problem = {weight, n, k};
  const std::vector<std::byte> whole = pack(problem, WeightLayout::tile16, file);
  // A strip at a time, as for weights that are read in parts.
  std::vector<std::byte> packed(whole.size(), std::byte{0xAA});
  const std::size_t strip_bytes = packed.size() / static_cast<std::size_t>(strips_of(n));
  const std::size_t row = file.size() / static_cast<std::size_t>(n);
  for (std::int64_t first = 0; first < n; first += kTileRows) {
    pack_rows(problem, WeightLayout::tile16, first, std::min<std::int64_t>(kTileRows, n - first),
              file.data() + static_cast<std::size_t>(first) * row,
              packed.data() + static_cast<std::size_t>(first / kTileRows) * strip_bytes);
  }
  if (packed != whole) throw std::runtime_error("parts are packed differently from the whole");
  return packed;
}

std::vector<std::byte> unpack_tiles(DType weight, std::int64_t n, std::int64_t k, std::span<const std::byte> tiles) {
  const GemmProblem problem = {weight, n, k};
  if (tiles.size() != packed_bytes(problem, WeightLayout::tile16))
    throw std::invalid_argument("not the bytes of tiles");
  const auto row = static_cast<std::size_t>(*row_bytes(weight, k));
  std::vector<std::byte> file(row * static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    unpack_row(problem, WeightLayout::tile16, tiles.data(), i, file.data() + static_cast<std::size_t>(i) * row);
  }
  return file;
}

}  // namespace imp::cuda
