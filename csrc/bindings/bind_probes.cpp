// Measurements of memory, arithmetic and kernels, each on a thread pool that exists for one call.
#include "bindings/register.h"

#include <pybind11/stl.h>

#include <future>
#include <string>
#include <vector>

#include "backend/cpu/cpu_caps.h"
#include "backend/cpu/gemm/bench_gemm.h"
#include "backend/cpu/probes/probes.h"
#include "base/error.h"
#include "base/thread_pool.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

using Probe = double (*)(ThreadPool& pool, const DeviceCaps& caps, double seconds);

// Thread 0 of a pool is its caller. Here that is a new thread, so that pinning does not affect Python's thread.
template <class Body>
auto on_pool(int threads, const std::vector<int>& cpus, const Body& body) {
  const py::gil_scoped_release unlocked;
  return std::async(std::launch::async,
                    [&] {
                      ThreadPool pool({.n_threads = threads, .cpus = cpus});
                      if (!cpus.empty()) pin_this_thread(cpus.front());
                      return body(pool);
                    })
      .get();
}

double measure(Probe probe, int threads, const std::vector<int>& cpus, double seconds) {
  return on_pool(threads, cpus, [&](ThreadPool& pool) { return probe(pool, cpu::cpu_caps("auto"), seconds); });
}

std::vector<double> time_kernel(const std::string& kernel, const std::string& weight, int m, std::int64_t n,
                                std::int64_t k, int threads, const std::vector<int>& cpus, std::int64_t total_bytes,
                                double seconds, const std::string& isa) {
  const auto dtype = dtype_from_name(weight);
  if (!dtype) throw FieldInvalid("weight", weight + ", expected one of " + dtype_names());
  return on_pool(threads, cpus, [&](ThreadPool& pool) {
    return cpu::bench_gemm({kernel, *dtype, m, n, k, total_bytes, seconds}, cpu::cpu_caps(isa), pool).seconds;
  });
}

double probe_peak(const std::string& kind, int threads, const std::vector<int>& cpus, double seconds) {
  if (kind == "int8") return measure(cpu::probe_int8_ops_per_s, threads, cpus, seconds);
  if (kind == "bf16") return measure(cpu::probe_bf16_ops_per_s, threads, cpus, seconds);
  if (kind == "f32") return measure(cpu::probe_f32_ops_per_s, threads, cpus, seconds);
  throw FieldInvalid("kind", kind + ", expected one of int8, bf16, f32");
}

}  // namespace

void register_probes(py::module_& module) {
  module.def(
      "probe_read_bandwidth",
      [](int threads, const std::vector<int>& cpus, double seconds) {
        return measure(cpu::probe_read_bytes_per_s, threads, cpus, seconds);
      },
      py::arg("threads"), py::kw_only(), py::arg("cpus") = std::vector<int>{}, py::arg("seconds") = 0.02,
      "Bytes per second that this many threads read from memory together. `cpus` pins each thread, if given.");
  module.def("probe_peak", &probe_peak, py::arg("kind"), py::arg("threads"), py::kw_only(),
             py::arg("cpus") = std::vector<int>{}, py::arg("seconds") = 0.01,
             "Peak operations per second on registers: `int8` or `bf16` dot products, or `f32` fused "
             "multiply-adds, with the best instructions of this machine. A multiply and an add count "
             "as two.");
  module.def("time_kernel", &time_kernel, py::arg("kernel"), py::arg("weight"), py::kw_only(), py::arg("m"),
             py::arg("n"), py::arg("k"), py::arg("threads"), py::arg("cpus") = std::vector<int>{},
             py::arg("total_bytes"), py::arg("seconds"), py::arg("isa") = "auto",
             "Measures the seconds of a product of m rows with an n × k weight. Cycles through random "
             "weights of at least total_bytes in all, like a model. Raises InvalidArgument if the "
             "kernel is unknown or refuses the weight.");
}

}  // namespace imp::bindings
