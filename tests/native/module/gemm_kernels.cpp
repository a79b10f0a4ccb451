// `_testing`: runs kernels and products on arrays, with canaries around everything a kernel may touch.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdlib>
#include <cstring>

#include "backend/cpu/cpu_caps.h"
#include "backend/cpu/gemm/bench_gemm.h"
#include "backend/cpu/gemm/gemm_runner.h"
#include "backend/cpu/gemm/kernel_list.h"
#include "backend/cpu/gemm/load_linears.h"
#include "backend/cpu/gemm/quantized/activation_block.h"
#include "backend/cpu/probes/probes.h"
#include "base/ceil_div.h"
#include "base/error.h"
#include "base/float_mode.h"
#include "native/module/gemm.h"

namespace py = pybind11;

namespace imp::bindings {

namespace {

using Bytes = py::array_t<std::uint8_t, py::array::c_style>;
using Floats = py::array_t<float, py::array::c_style>;

GemmProblem problem_of(const std::string& weight, std::int64_t n, std::int64_t k, std::size_t n_bytes) {
  const auto dtype = dtype_from_name(weight);
  if (!dtype) throw py::value_error("no dtype " + weight);
  const auto row = row_bytes(*dtype, k);
  if (!row || static_cast<std::size_t>(*row * n) != n_bytes) throw py::value_error("not the bytes of [n, k]");
  return {*dtype, n, k};
}

WeightSource source_of(const std::string& name, const GemmProblem& problem, const Bytes& file) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(file.data());
  const auto row = static_cast<std::size_t>(*row_bytes(problem.weight, problem.k));
  return {name, problem, [bytes, row](std::int64_t first, std::int64_t n_rows, std::byte* out) {
            std::memcpy(out, bytes + static_cast<std::size_t>(first) * row, static_cast<std::size_t>(n_rows) * row);
          }};
}

// Kernels with one error each. The functions of this file must detect those of the ones that equal `reference`
// otherwise.
template <class Wrong>
GemmKernel broken(const char* name, Wrong wrong) {
  GemmKernel kernel = cpu::kernel_list().back();
  kernel.name = name;
  kernel.run = wrong;
  return kernel;
}

std::optional<GemmKernel> broken_kernel(const std::string& name) {
  const auto zeros = [](const GemmArgs& args) {
    for (int row = 0; row < args.m; ++row) {
      for (std::int64_t i = args.n_begin; i < args.n_end; ++i) args.out[row * args.out_stride + i - args.n_begin] = 0;
    }
  };
  if (name == "broken_zeros") return broken("broken_zeros", +zeros);
  if (name == "broken_output") {
    return broken("broken_output", +[](const GemmArgs& args) { args.out[args.n_end - args.n_begin] = 1; });
  }
  if (name == "broken_weights") {
    return broken(
        "broken_weights", +[](const GemmArgs& args) { const_cast<std::byte*>(args.weight)[3] ^= std::byte{1}; });
  }
  if (name == "broken_scratch") {
    return broken(
        "broken_scratch",
        +[](const GemmArgs& args) { args.scratch[cpu::kernel_list().back().scratch_bytes({}, 1)] ^= std::byte{1}; });
  }
  if (name == "broken_twin") return broken_twin();
  return std::nullopt;
}

GemmKernel kernel_of(const std::string& name, const GemmProblem& problem) {
  if (const auto wrong = broken_kernel(name)) return *wrong;
  for (const GemmKernel& kernel : all_kernels()) {
    if (kernel.name != name) continue;
    if (!kernel.any_weight && kernel.weight != problem.weight) throw py::value_error(name + ": another weight type");
    if (const std::string why = refusal(kernel, problem, cpu::cpu_caps("auto")); !why.empty())
      throw py::value_error(why);
    return kernel;
  }
  throw py::value_error("no kernel " + name);
}

// An allocation of exactly n_bytes between two guards, so that both the guards and a sanitizer detect a stray write.
class Guarded {
 public:
  Guarded(const char* what, std::size_t n_bytes, std::uint8_t fill)
      : what_(what), n_bytes_(n_bytes), bytes_(static_cast<std::uint8_t*>(std::aligned_alloc(64, size()))) {
    std::memset(bytes_, kGuard, size());
    std::memset(bytes_ + kGuardBytes, fill, n_bytes_);
  }
  ~Guarded() { std::free(bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::byte* data() { return reinterpret_cast<std::byte*>(bytes_ + kGuardBytes); }
  void check() const {
    for (std::size_t i = 0; i < size(); ++i) {
      const bool guard = i < kGuardBytes || i >= kGuardBytes + n_bytes_;
      if (guard && bytes_[i] != kGuard) throw std::runtime_error(std::string("stray write beside the ") + what_);
    }
  }

 private:
  static constexpr std::size_t kGuardBytes = 128;
  static constexpr std::uint8_t kGuard = 0xC7;
  std::size_t size() const { return round_up(n_bytes_ + 2 * kGuardBytes, 64); }

  const char* what_;
  std::size_t n_bytes_;
  std::uint8_t* bytes_;
};

std::ptrdiff_t activation_bytes(const GemmKernel& kernel, std::int64_t k) {
  return kernel.activations == ActivationFormat::f32 ? k * static_cast<std::ptrdiff_t>(sizeof(float))
                                                     : cpu::prepared_bytes(kernel.activations, k);
}

void fill_activations(const GemmKernel& kernel, const Floats& x, std::byte* out) {
  const std::int64_t m = x.shape(0), k = x.shape(1);
  for (std::int64_t row = 0; row < m; ++row) {
    std::byte* const to = out + row * activation_bytes(kernel, k);
    if (const auto prepare = cpu::preparer_for(kernel.activations, {})) {
      prepare(x.data(row, 0), k, to);
    } else {
      std::memcpy(to, x.data(row, 0), static_cast<std::size_t>(k) * sizeof(float));
    }
  }
}

void require_unwritten(const float* out, std::int64_t begin, std::int64_t end, std::uint8_t fill) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(out + begin);
  for (std::int64_t i = 0; i < (end - begin) * 4; ++i) {
    if (bytes[i] != fill) throw std::runtime_error("stray write between the rows of the output");
  }
}

// Runs one kernel over [0, n) in calls that end at `cuts`. Memory that it must not read or write is filled with `fill`.
Floats run_kernel(const std::string& name, const std::string& weight, const Bytes& file, std::int64_t n,
                  const Floats& x, std::vector<std::int64_t> cuts, std::uint8_t fill, int prefetching_rows) {
  const std::int64_t m = x.shape(0), k = x.shape(1);
  const GemmProblem problem = problem_of(weight, n, k, static_cast<std::size_t>(file.size()));
  const GemmKernel kernel = kernel_of(name, problem);
  ThreadPool alone({});
  Arena arena;
  const auto linear =
      cpu::load_cpu_linear(source_of("w", problem, file), {kernel.layout, {{&kernel, kAnyRows}}}, arena, alone);
  const ComputeFloatMode mode;

  constexpr std::int64_t kGap = 3;  // floats between the rows of the output
  Guarded packed("weights", linear->n_bytes(), fill);
  std::memcpy(packed.data(), linear->bytes(), linear->n_bytes());
  Guarded activations("activations", static_cast<std::size_t>(m * activation_bytes(kernel, k)), fill);
  fill_activations(kernel, x, activations.data());
  Guarded out("output", static_cast<std::size_t>(m * (n + kGap)) * sizeof(float), fill);
  float* const outputs = reinterpret_cast<float*>(out.data());
  Guarded scratch("scratch", kernel.scratch_bytes(problem, static_cast<int>(m)), fill);

  GemmArgs args;
  args.weight = packed.data();
  args.weight_type = problem.weight;
  args.activations = activations.data();
  args.activation_stride = activation_bytes(kernel, k);
  args.out_stride = n + kGap;
  args.m = static_cast<int>(m);
  args.n = n;
  args.k = k;
  args.prefetching_rows = prefetching_rows;
  args.scratch = scratch.data();
  cuts.push_back(n);
  for (const std::int64_t cut : cuts) {
    args.n_begin = args.n_end;
    args.n_end = cut;
    args.out = outputs + args.n_begin;
    kernel.run(args);
    for (std::int64_t row = 0; row < m; ++row) require_unwritten(outputs + row * (n + kGap), cut, n + kGap, fill);
  }
  for (const Guarded* buffer : {&packed, &activations, &out, &scratch}) buffer->check();
  if (std::memcmp(packed.data(), linear->bytes(), linear->n_bytes()) != 0) {
    throw std::runtime_error("the kernel wrote into the weights");
  }
  Floats result({m, n});
  for (std::int64_t row = 0; row < m; ++row) {
    std::memcpy(result.mutable_data(row, 0), outputs + row * (n + kGap), static_cast<std::size_t>(n) * sizeof(float));
  }
  return result;
}

py::tuple quantize_rows(const std::string& isa, const Floats& x) {
  const std::int64_t m = x.shape(0), k = x.shape(1);
  const DeviceCaps caps = cpu::cpu_caps(isa);
  py::array_t<std::int8_t> codes({m, k});
  py::array_t<float> scales({m, k / 32});
  py::array_t<std::int32_t> biases({m, k / 32});
  std::vector<cpu::ActivationBlock> blocks(static_cast<std::size_t>(k / 32));
  const ComputeFloatMode mode;
  for (std::int64_t row = 0; row < m; ++row) {
    cpu::preparer_for(ActivationFormat::q8_block32, caps)(x.data(row, 0), k,
                                                          reinterpret_cast<std::byte*>(blocks.data()));
    for (std::int64_t b = 0; b < k / 32; ++b) {
      const cpu::ActivationBlock& block = blocks[static_cast<std::size_t>(b)];
      std::memcpy(codes.mutable_data(row, 32 * b), block.codes, 32);
      *scales.mutable_data(row, b) = block.scale;
      *biases.mutable_data(row, b) = block.bias;
    }
  }
  return py::make_tuple(codes, scales, biases);
}

// Loads a weight as a model does. Returns its bytes, and the file's bytes of each row, unpacked.
py::tuple pack_and_unpack(const std::string& weight, const Bytes& file, std::int64_t n, std::int64_t k,
                          const std::string& isa, int n_threads) {
  const GemmProblem problem = problem_of(weight, n, k, static_cast<std::size_t>(file.size()));
  const GemmRegistry registry(cpu::kernel_list(), cpu::cpu_caps(isa));
  ThreadPool pool({.n_threads = n_threads, .cpus = {}});
  Arena arena;
  const auto linear = cpu::load_cpu_linear(source_of("w", problem, file), registry.plan(problem, "w", {}), arena, pool);
  Bytes packed(static_cast<py::ssize_t>(linear->n_bytes()));
  std::memcpy(packed.mutable_data(), linear->bytes(), linear->n_bytes());
  Bytes rows({n, static_cast<std::int64_t>(linear->row_bytes())});
  Floats values({n, k});
  std::vector<std::byte> scratch(linear->row_bytes());
  for (std::int64_t row = 0; row < n; ++row) {
    linear->read_row(row, reinterpret_cast<std::byte*>(rows.mutable_data(row, 0)));
    linear->decode_row(row, scratch.data(), values.mutable_data(row, 0));
  }
  return py::make_tuple(packed, rows, values);
}

class HostVector final : public Vector {
 public:
  explicit HostVector(const Floats& values) : values_(values) {}
  const float* data() const noexcept override { return values_.data(); }
  int size() const noexcept override { return static_cast<int>(values_.size()); }

 private:
  Floats values_;
};

// Backend::linear's work over terms that share x; rows of x and of the outputs are further apart than they are wide.
py::tuple linear(const std::vector<py::tuple>& terms, const Floats& x, ThreadPool& pool, const std::string& isa,
                 const std::vector<std::pair<std::string, std::string>>& overrides) {
  const auto m = static_cast<int>(x.shape(0)), k = static_cast<int>(x.shape(1));
  constexpr int kGap = 16;
  const GemmRegistry registry(cpu::kernel_list(), cpu::cpu_caps(isa));
  Arena arena;
  std::vector<GemmOverride> wanted;
  for (const auto& [pattern, kernel] : overrides) wanted.push_back({pattern, kernel});

  std::vector<std::unique_ptr<cpu::CpuLinear>> weights;
  std::vector<std::unique_ptr<HostVector>> biases;
  std::vector<std::vector<float>> outs;
  std::vector<const Linear*> named;
  std::vector<LinearTerm> products;
  for (const py::tuple& term : terms) {
    const auto file = term[1].cast<Bytes>();
    const auto n = term[2].cast<std::int64_t>();
    const GemmProblem problem = problem_of(term[0].cast<std::string>(), n, k, static_cast<std::size_t>(file.size()));
    weights.push_back(
        cpu::load_cpu_linear(source_of("w", problem, file), registry.plan(problem, "w", wanted), arena, pool));
    biases.push_back(term[3].is_none() ? nullptr : std::make_unique<HostVector>(term[3].cast<Floats>()));
    outs.emplace_back(static_cast<std::size_t>(m * (n + kGap)));
    named.push_back(weights.back().get());
    products.push_back({named.back(), biases.back().get(), {outs.back().data(), m, static_cast<int>(n), n + kGap}});
  }
  std::vector<float> rows(static_cast<std::size_t>(m * (k + kGap)));
  for (int row = 0; row < m; ++row) {
    std::memcpy(rows.data() + row * (k + kGap), x.data(row, 0), static_cast<std::size_t>(k) * sizeof(float));
  }
  cpu::GemmRunner runner(registry, pool);
  runner.reserve({.max_rows = m, .weights = named});
  {
    const py::gil_scoped_release release;
    runner.run({rows.data(), m, k, k + kGap}, products);
  }
  py::list results;
  for (const LinearTerm& product : products) {
    Floats out({m, product.out.width});
    for (int row = 0; row < m; ++row) {
      std::memcpy(out.mutable_data(row, 0), product.out.data + row * product.out.stride,
                  static_cast<std::size_t>(product.out.width) * sizeof(float));
    }
    results.append(out);
  }
  py::dict launches;
  const std::vector<std::uint64_t> counts = runner.launches();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) launches[py::str(std::string(cpu::kernel_list()[i].name))] = counts[i];
  }
  return py::make_tuple(results, launches);
}

// Loads a weight, then removes the selection functions from the kernel list, and runs n_steps products. A step that
// still selected a kernel would call a null pointer. Returns the launches of the kernels.
std::vector<std::uint64_t> steps_without_selection(const Bytes& file, std::int64_t n, const Floats& x, int n_steps) {
  const auto m = static_cast<int>(x.shape(0)), k = static_cast<int>(x.shape(1));
  std::vector<GemmKernel> kernels(cpu::kernel_list().begin(), cpu::kernel_list().end());
  const GemmRegistry registry(kernels, cpu::cpu_caps("auto"));
  ThreadPool pool({});
  Arena arena;
  const GemmProblem problem = problem_of("q8_0", n, k, static_cast<std::size_t>(file.size()));
  const auto weight = cpu::load_cpu_linear(source_of("w", problem, file), registry.plan(problem, "w", {}), arena, pool);
  const Linear* const named = weight.get();
  cpu::GemmRunner runner(registry, pool);
  runner.reserve({.max_rows = m, .weights = {named}});
  for (GemmKernel& kernel : kernels) {
    kernel.refuses = nullptr;
    kernel.scratch_bytes = nullptr;
  }
  std::vector<float> rows(x.data(), x.data() + x.size()), out(static_cast<std::size_t>(m * n));
  for (int step = 0; step < n_steps; ++step) {
    const LinearTerm term{named, nullptr, {out.data(), m, static_cast<int>(n), n}};
    runner.run({rows.data(), m, k, k}, {&term, 1});
  }
  return runner.launches();
}

py::dict bench(const std::string& kernel, const std::string& weight, int m, std::int64_t n, std::int64_t k,
               std::int64_t total_bytes, double seconds, ThreadPool& pool) {
  const auto dtype = dtype_from_name(weight);
  if (!dtype) throw py::value_error("no dtype " + weight);
  const cpu::GemmBenchResult result =
      cpu::bench_gemm({kernel, *dtype, m, n, k, total_bytes, seconds}, cpu::cpu_caps("auto"), pool);
  py::dict out;
  out["seconds"] = result.seconds;
  out["ops"] = result.ops;
  out["bytes"] = result.bytes;
  return out;
}

py::list split(const std::vector<std::pair<std::int64_t, std::int64_t>>& sizes, int n_threads) {
  std::vector<cpu::TermSize> terms;
  for (const auto& [n, cost] : sizes) terms.push_back({n, cost});
  std::vector<cpu::GemmTask> tasks;
  cpu::split_terms(terms, n_threads, tasks);
  py::list out;
  for (const cpu::GemmTask& task : tasks) out.append(py::make_tuple(task.term, task.n_begin, task.n_end));
  return out;
}

}  // namespace

void register_testing_gemm_kernels(py::module_& module) {
  module.def("gemm_run_kernel", &run_kernel, py::arg("kernel"), py::arg("weight"), py::arg("file"), py::arg("n"),
             py::arg("x"), py::arg("cuts") = std::vector<std::int64_t>{}, py::arg("fill") = 0,
             py::arg("prefetching_rows") = GemmArgs{}.prefetching_rows);
  module.def("gemm_quantize_rows", &quantize_rows, py::arg("isa"), py::arg("x"));
  module.attr("layout_revision") = kLayoutRevision;
  module.def("gemm_pack_and_unpack", &pack_and_unpack, py::arg("weight"), py::arg("file"), py::arg("n"), py::arg("k"),
             py::arg("isa") = "auto", py::arg("n_threads") = 1);
  module.def("gemm_linear", &linear, py::arg("terms"), py::arg("x"), py::arg("pool"), py::arg("isa") = "auto",
             py::arg("overrides") = std::vector<std::pair<std::string, std::string>>{});
  module.def("gemm_steps_without_selection", &steps_without_selection);
  module.def("bench_gemm", &bench, py::arg("kernel"), py::arg("weight"), py::arg("m"), py::arg("n"), py::arg("k"),
             py::arg("total_bytes"), py::arg("seconds"), py::arg("pool"));
  module.def("probe", [](ThreadPool& pool, const std::string& isa, double seconds) {
    const DeviceCaps caps = cpu::cpu_caps(isa);
    py::dict rates;
    rates["read_bytes_per_s"] = cpu::probe_read_bytes_per_s(pool, caps, seconds);
    rates["f32_ops_per_s"] = cpu::probe_f32_ops_per_s(pool, caps, seconds);
    rates["bf16_ops_per_s"] = cpu::probe_bf16_ops_per_s(pool, caps, seconds);
    rates["int8_ops_per_s"] = cpu::probe_int8_ops_per_s(pool, caps, seconds);
    return rates;
  });
  module.def("gemm_split", &split, py::arg("sizes"), py::arg("n_threads"));
}

}  // namespace imp::bindings
