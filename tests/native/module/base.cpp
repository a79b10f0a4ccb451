// `_testing`: the thread pool, the arena and the CPU's features.
#include <pybind11/stl.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/arena.h"
#include "base/checksum.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/float_mode.h"
#include "base/thread_pool.h"
#include "native/module/base.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace py = pybind11;

namespace imp::bindings {

namespace {

// The bits that choose rounding and denormals, without the sticky exception flags; -1 where there are none.
std::int64_t float_mode() {
#if IMP_X86
  return _mm_getcsr() & ~0x3fU;
#else
  return -1;
#endif
}

void set_float_mode([[maybe_unused]] std::int64_t mode) {
#if IMP_X86
  _mm_setcsr(static_cast<unsigned>(mode));
#endif
}

std::vector<std::vector<int>> count_tasks(ThreadPool& pool, int n_tasks) {
  std::vector<std::atomic<int>> counts(static_cast<std::size_t>(n_tasks));
  std::vector<int> threads(static_cast<std::size_t>(n_tasks), -1);
  pool.run(n_tasks, [&](int task, int thread) {
    counts[static_cast<std::size_t>(task)].fetch_add(1);
    threads[static_cast<std::size_t>(task)] = thread;
  });
  return {{counts.begin(), counts.end()}, threads};
}

// Runs n_threads tasks that wait for each other, so that every thread of the pool takes exactly one. Returns the result
// of `probe` on each thread.
template <class Probe>
std::vector<std::int64_t> on_every_thread(ThreadPool& pool, const Probe& probe) {
  std::vector<std::int64_t> seen(static_cast<std::size_t>(pool.n_threads()));
  std::atomic<int> waiting{pool.n_threads()};
  pool.run(pool.n_threads(), [&](int, int thread) {
    waiting.fetch_sub(1);
    while (waiting.load() > 0) std::this_thread::yield();
    seen[static_cast<std::size_t>(thread)] = probe();
  });
  return seen;
}

int cpu_of_this_thread() {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

// Computes the sum of 1 … n_tasks in several threads at once, n_runs times each. Returns the number of wrong sums.
int wrong_sums(ThreadPool& pool, int n_callers, int n_runs, int n_tasks) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < n_callers; ++c) {
    callers.emplace_back([&] {
      for (int run = 0; run < n_runs; ++run) {
        std::atomic<std::int64_t> sum{0};
        pool.run(n_tasks, [&](int task, int) { sum.fetch_add(task + 1); });
        if (sum.load() != std::int64_t{n_tasks} * (n_tasks + 1) / 2) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  return wrong.load();
}

py::list arena_pieces(std::size_t chunk_bytes, const std::vector<std::size_t>& sizes) {
  Arena arena(chunk_bytes);
  std::vector<std::shared_ptr<std::byte>> pieces;
  py::list out;
  for (const std::size_t size : sizes) {
    pieces.push_back(arena.allocate(size));
    std::byte* const piece = pieces.back().get();
    std::size_t nonzero = 0;
    for (std::size_t i = 0; i < size; ++i) nonzero += piece[i] != std::byte{0};
    std::memset(piece, 0xA5, size);
    out.append(py::make_tuple(reinterpret_cast<std::uintptr_t>(piece), nonzero));
  }
  return out;
}

// An arena and its allocations.
class HeldArena {
 public:
  HeldArena(bool huge_pages, std::vector<int> interleave_nodes)
      : arena_(Arena::kChunkBytes, {.huge_pages = huge_pages, .interleave_nodes = std::move(interleave_nodes)}) {}
  std::uintptr_t allocate(std::size_t n_bytes) {
    pieces_.push_back(arena_.allocate(n_bytes));
    return reinterpret_cast<std::uintptr_t>(pieces_.back().get());
  }

 private:
  Arena arena_;
  std::vector<std::shared_ptr<std::byte>> pieces_;
};

}  // namespace

void register_testing_base(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<HeldArena>(module, "Arena")
      .def(py::init<bool, std::vector<int>>(), py::kw_only(), py::arg("huge_pages") = true,
           py::arg("interleave_nodes") = std::vector<int>{})
      .def("allocate", &HeldArena::allocate);
  py::class_<ThreadPool>(module, "ThreadPool")
      .def(py::init([](int n_threads, std::vector<int> cpus, std::int64_t spin_us) {
             return std::make_unique<ThreadPool>(ThreadPoolOptions{n_threads, std::move(cpus), spin_us});
           }),
           py::arg("n_threads"), py::arg("cpus") = std::vector<int>{}, py::arg("spin_us") = 100)
      .def_property_readonly("n_threads", &ThreadPool::n_threads)
      .def("rest", &ThreadPool::rest, Release())
      .def("begin", &ThreadPool::begin, Release())
      .def("count_tasks", &count_tasks, Release())
      .def("wrong_sums", &wrong_sums, Release())
      .def(
          "float_modes", [](ThreadPool& pool) { return on_every_thread(pool, float_mode); }, Release())
      .def(
          "cpus", [](ThreadPool& pool) { return on_every_thread(pool, cpu_of_this_thread); }, Release())
      .def(
          "disturb_float_modes",
          [](ThreadPool& pool, std::int64_t mode) {
            on_every_thread(pool, [&] {
              set_float_mode(mode);
              return std::int64_t{0};
            });
          },
          Release());
  module.def("throw_system_error", [](int code) { throw std::system_error(code, std::generic_category()); });
  module.def("throw_filesystem_error", [](int code) {
    throw std::filesystem::filesystem_error("cannot open", "model.gguf", {code, std::generic_category()});
  });
  module.def("float_mode", &float_mode);
  module.def("set_float_mode", &set_float_mode);
  module.def("arena_pieces", &arena_pieces);
  module.def("checksum", [](std::string_view bytes, std::uint64_t seed) {
    return checksum(std::as_bytes(std::span(bytes)), seed);
  });
  module.def("known_isas", [] { return std::vector<std::string_view>(known_isas().begin(), known_isas().end()); });
  module.def("isa_features", [](const std::string& isa) {
    std::vector<std::string_view> names;
    const CpuFeatures features = isa_features(isa).value();
    for (int i = 0; i < kNumCpuFeatures; ++i) {
      if (features.has(static_cast<CpuFeature>(i))) names.push_back(name_of(static_cast<CpuFeature>(i)));
    }
    return names;
  });
  // The instruction sets of this machine, in the order of known_isas().
  module.def("isas_here", [] {
    const CpuFeatures here = detect_cpu_features();
    std::vector<std::string_view> names;
    for (const std::string_view isa : known_isas()) {
      if (here.includes(*isa_features(isa))) names.push_back(isa);
    }
    return names;
  });
}

}  // namespace imp::bindings
