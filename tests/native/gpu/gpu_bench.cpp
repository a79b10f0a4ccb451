// Measures kernels. Compiled for the real device and for the emulated one.
#include "native/gpu/gpu_bench.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/runtime.h"
#include "backend/cuda/gemm/activation_rows.h"
#include "backend/cuda/gemm/cuda_linear.h"
#include "backend/cuda/make_cuda_backend.h"
#include "base/ceil_div.h"
#include "native/gpu/backend_memory.h"

namespace imp::cuda {
namespace {

using bindings::AttentionBench;
using bindings::ProductBench;
using bindings::Seconds;

constexpr int kMinReplays = 3, kMaxReplays = 50;
constexpr int kMinLaunches = 8;  // launches in a graph, so that the start of the graph has little weight

void require_ok(Stream& stream, const char* what) {
  synchronize(stream);
  if (!stream.is_ok()) throw std::runtime_error(std::string(what) + ": " + stream.first_failure().name);
}

// Repeats `work`, which has `n_parts` measured parts. The first run only determines the number of repetitions.
Seconds time_work(Stream& stream, const std::function<void()>& work, int n_parts, double seconds) {
  Event begin, end;
  const auto once = [&] {
    begin.record(stream);
    work();
    end.record(stream);
    require_ok(stream, "a timed run");
    return end.seconds_since(begin);
  };
  once();
  const double first = std::max(once(), 1e-6);
  const int n = std::clamp(static_cast<int>(seconds / first), kMinReplays, kMaxReplays);
  Seconds found;
  for (int i = 0; i < n; ++i) found.push_back(once() / n_parts);
  return found;
}

// A weight in more copies than a cache can hold, and rows to multiply it with.
class Products {
 public:
  explicit Products(const ProductBench& bench)
      : bench_(bench),
        backend_(make_cuda_backend({.kind = "cuda",
                                    .isa = "auto",
                                    .n_threads = bench.n_threads,
                                    .cpus = {},
                                    .memory = {},
                                    .tuning = {},
                                    .cublaslt = bench.cublaslt})) {
    int max_rows = 1;
    for (const auto& [kernel, m] : bench.cases) max_rows = std::max(max_rows, m);
    make_x(max_rows);
    out_ = backend_->make_rows(max_rows + 1, static_cast<int>(bench.problem.n));  // an extra row that no kernel writes
  }

  // Returns the result of one product. Throws if the kernel wrote outside of its output.
  std::vector<float> multiply(const std::string& name, int m) {
    const GemmKernel* const found = find(name, m);
    if (found == nullptr) throw std::invalid_argument(name + ": refuses");
    const GemmKernel& kernel = *found;
    load(kernel);
    const auto n_floats = static_cast<std::size_t>(out_.n_rows) * static_cast<std::size_t>(out_.stride);
    std::vector<std::uint32_t> words(n_floats, kUnwritten);
    write_device(*backend_, out_.data, words.data(), n_floats * sizeof(float));
    const Prepared prepared(*this, kernel, m);
    launch(kernel, prepared.launch, 0);
    require_ok(stream(), name.c_str());
    read_device(*backend_, words.data(), out_.data, n_floats * sizeof(float));
    return written(words, m);
  }

  // Returns nothing if the kernel refuses.
  Seconds time(const std::string& name, int m) {
    const GemmKernel* const found = find(name, m);
    if (found == nullptr) return {};
    const GemmKernel& kernel = *found;
    if (layout_ != kernel.layout || copies_.empty()) load(kernel);
    const Prepared prepared(*this, kernel, m);
    const int n_launches = std::max(kMinLaunches, static_cast<int>(copies_.size()));
    const auto walk = [&] {
      for (int i = 0; i < n_launches; ++i) launch(kernel, prepared.launch, static_cast<std::size_t>(i));
    };
    walk();  // loads the kernel, which is not possible during a capture
    require_ok(stream(), name.c_str());
    Graph graph;
    graph.begin(stream());
    walk();
    if (const Status status = graph.end(stream()); !status.is_ok()) throw std::runtime_error(status.name);
    return time_work(stream(), [&] { graph.replay(stream()); }, n_launches, bench_.seconds);
  }

 private:
  Stream& stream() { return stream_of(*backend_); }

  static constexpr std::uint32_t kUnwritten = 0xFFFFFFFF;  // a NaN

  // A launch's input in the kernel's format, and its scratch.
  struct Prepared {
    Prepared(Products& products, const GemmKernel& kernel, int m) {
      const GemmProblem& problem = products.bench_.problem;
      if (kernel.prepare != nullptr) kernel.prepare(problem, &products.stream());
      scratch = allocate_on_device(std::max<std::size_t>(1, kernel.scratch_bytes(problem, m)));
      launch.stream = &products.stream();
      launch.weight_type = problem.weight;
      launch.m = m;
      launch.k = problem.k;
      launch.scratch = scratch.get();
      launch.x = reinterpret_cast<const std::byte*>(products.x_.data);
      launch.x_stride = products.x_.stride * static_cast<std::ptrdiff_t>(sizeof(float));
      const std::int64_t row = activation_row_bytes(kernel.activations, problem.k);
      if (row == 0) return;
      rows = allocate_on_device(static_cast<std::size_t>(row * m));
      Rows x = products.x_;
      x.n_rows = m;
      prepare_rows(products.stream(), x, kernel.activations, rows.get());
      launch.x = rows.get();
      launch.x_stride = row;
    }

    std::shared_ptr<std::byte> scratch, rows;
    GemmLaunch launch;
  };

  // Uses the copy with this number, modulo the number of copies.
  void launch(const GemmKernel& kernel, GemmLaunch launch, std::size_t copy) {
    const GemmLaunchTerm term = {.weight = copies_[copy % copies_.size()].get(),
                                 .out = out_.data,
                                 .out_stride = out_.stride,
                                 .n = bench_.problem.n};
    launch.terms = {&term, 1};
    kernel.launch(launch);
  }

  std::vector<float> written(const std::vector<std::uint32_t>& words, int m) const {
    std::vector<float> found;
    for (int row = 0; row < out_.n_rows; ++row) {
      for (std::ptrdiff_t i = 0; i < out_.stride; ++i) {
        const std::uint32_t word = words[static_cast<std::size_t>(row * out_.stride + i)];
        if (row < m && i < out_.width) {
          found.push_back(std::bit_cast<float>(word));
        } else if (word != kUnwritten) {
          throw std::runtime_error("a kernel wrote beside its output");
        }
      }
    }
    return found;
  }

  // Null if the kernel does not support the problem.
  const GemmKernel* find(const std::string& name, int m) {
    const auto kernels = backend_->registry().kernels();
    const auto found = std::ranges::find(kernels, name, &GemmKernel::name);
    if (found == kernels.end()) throw std::invalid_argument("no kernel " + name);
    return m > found->max_m || found->refuses(bench_.problem, backend_->caps()) != nullptr ? nullptr : &*found;
  }

  void make_x(int n_rows) {
    const auto k = static_cast<std::size_t>(bench_.problem.k);
    const std::size_t n_given = bench_.x.size() / k;
    x_ = backend_->make_rows(n_rows, static_cast<int>(k));
    for (int row = 0; row < n_rows; ++row) {
      const float* const from = bench_.x.data() + static_cast<std::size_t>(row) % n_given * k;
      copy_to_device(stream(), x_.data + row * x_.stride, from, k * sizeof(float));
    }
    require_ok(stream(), "the input");
  }

  void load(const GemmKernel& kernel) {
    copies_.clear();
    layout_ = kernel.layout;
    const std::size_t row = static_cast<std::size_t>(*row_bytes(bench_.problem.weight, bench_.problem.k));
    const std::size_t n_given = bench_.rows.size() / row;
    const auto read = [&](std::int64_t first, std::int64_t n_rows, std::byte* out) {
      for (std::int64_t i = 0; i < n_rows; ++i) {
        std::memcpy(out + static_cast<std::size_t>(i) * row,
                    bench_.rows.data() + static_cast<std::size_t>(first + i) % n_given * row, row);
      }
    };
    const auto weight =
        backend_->load_linear({"weight", bench_.problem, read}, {kernel.layout, {{&kernel, kernel.max_m}}});
    const std::byte* const bytes = static_cast<const CudaLinear&>(*weight).bytes();
    for (std::size_t held = 0; held == 0 || held < bench_.walk_bytes; held += weight->n_bytes()) {
      copies_.push_back(allocate_on_device(weight->n_bytes()));
      copy_on_device(stream(), copies_.back().get(), bytes, weight->n_bytes());
    }
    require_ok(stream(), "the weights");
  }

  const ProductBench& bench_;
  std::unique_ptr<Backend> backend_;
  Rows x_, out_;
  WeightLayout layout_ = WeightLayout::file;
  std::vector<std::shared_ptr<std::byte>> copies_;
};

// The attention of every layer of a step.
class EachLayer final : public StepBody {
 public:
  using Op = std::function<void(int layer, const Batch& batch, KvPool& pool)>;
  EachLayer(int n_layers, Op op) : n_layers_(n_layers), op_(std::move(op)) {}
  int max_rows() const noexcept override { return 0; }  // none is added
  void run(const Batch& batch, KvPool& pool) override {
    for (int layer = 0; layer < n_layers_; ++layer) op_(layer, batch, pool);
  }

 private:
  int n_layers_;
  Op op_;
};

// Sequences with random keys, values and queries.
class AttentionRuns {
 public:
  explicit AttentionRuns(const AttentionBench& bench)
      : bench_(bench),
        backend_(make_cuda_backend(
            {.kind = "cuda", .isa = "auto", .n_threads = 1, .cpus = {}, .memory = {}, .tuning = {}})) {
    const AttentionParams& heads = bench.params;
    const int n_blocks = ceil_div(bench.n_tokens, kBlockTokens);
    pool_ = backend_->make_kv_pool(
        {.layers = equal_layers(bench.n_layers, {heads.n_kv_heads, heads.head_dim, {KvType::bf16, KvType::bf16}}),
         .block_tokens = kBlockTokens,
         .n_blocks = bench.n_sequences * n_blocks});
    for (int i = 0; i < bench.n_sequences; ++i) {
      blocks_.emplace_back();
      for (int block = 0; block < n_blocks; ++block) blocks_.back().push_back(i + block * bench.n_sequences);
    }
    // A batch may be padded.
    const int n_rows = std::max(bench.n_tokens, 2 * bench.n_sequences * bench.n_rows);
    backend_->reserve({.max_rows = n_rows,
                       .max_logits_rows = 1,
                       .max_sequences = 2 * bench.n_sequences,
                       .vocab_size = 16,
                       .max_context = bench.n_tokens,
                       .attention = heads,
                       .weights = {}});
    q_ = random_rows(n_rows, heads.n_heads * heads.head_dim);
    kv_ = random_rows(n_rows, heads.n_kv_heads * heads.head_dim);
    out_ = backend_->make_rows(n_rows, q_.width);
    fill_cache();
  }

  Seconds time() {
    EachLayer attends(bench_.n_layers, [this](int layer, const Batch& batch, KvPool& pool) {
      const auto n = static_cast<int>(batch.tokens.size());
      backend_->attend(pool, layer, batch.sequences, bench_.params, first(q_, n), first(out_, n));
    });
    std::vector<SequenceRows> sequences;
    for (int i = 0; i < bench_.n_sequences; ++i) {
      sequences.push_back({i * bench_.n_rows, bench_.n_rows, bench_.n_tokens - bench_.n_rows, blocks_[index(i)]});
    }
    Stream& stream = stream_of(*backend_);
    return time_work(stream, [&] { step(sequences, attends); }, bench_.n_layers, bench_.seconds);
  }

 private:
  static constexpr int kBlockTokens = 16;

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  static Rows first(Rows rows, int n) {
    rows.n_rows = n;
    return rows;
  }

  Rows random_rows(int n_rows, int width) {
    const Rows rows = backend_->make_rows(n_rows, width);
    std::mt19937 random(static_cast<unsigned>(width));
    std::normal_distribution<float> normal;
    std::vector<float> values(index(n_rows) * static_cast<std::size_t>(rows.stride));
    for (float& value : values) value = normal(random);
    write_device(*backend_, rows.data, values.data(), values.size() * sizeof(float));
    return rows;
  }

  void fill_cache() {
    EachLayer fills(bench_.n_layers, [this](int layer, const Batch& batch, KvPool& pool) {
      const Rows rows = first(kv_, static_cast<int>(batch.tokens.size()));
      backend_->append_kv(pool, layer, batch.sequences, rows, rows);
    });
    for (int i = 0; i < bench_.n_sequences; ++i) step({{0, bench_.n_tokens, 0, blocks_[index(i)]}}, fills);
  }

  void step(const std::vector<SequenceRows>& sequences, StepBody& body) {
    std::vector<std::int32_t> tokens, positions;
    for (const SequenceRows& one : sequences) {
      for (int row = 0; row < one.n_rows; ++row) positions.push_back(one.first_position + row);
    }
    tokens.resize(positions.size());
    backend_->run_step({.tokens = tokens, .positions = positions, .sequences = sequences, .logits_rows = {}}, *pool_,
                       body);
  }

  const AttentionBench& bench_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  std::vector<std::vector<std::int32_t>> blocks_;
  Rows q_, kv_, out_;
};

}  // namespace

Seconds bench_attention(const AttentionBench& bench) {
  return AttentionRuns(bench).time();
}

std::vector<float> multiply(const ProductBench& bench) {
  const auto& [kernel, m] = bench.cases.front();
  return Products(bench).multiply(kernel, m);
}

std::vector<Seconds> bench_products(const ProductBench& bench) {
  Products products(bench);
  std::vector<Seconds> found;
  for (const auto& [kernel, m] : bench.cases) found.push_back(products.time(kernel, m));
  return found;
}

}  // namespace imp::cuda
