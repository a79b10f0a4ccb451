// `_testing`: the kernels for AMX on portable tiles and with emulated instructions, and one product of portable tiles.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "backend/cpu/gemm/kernel_list.h"
#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/quantized/tile_product.inl"
#include "backend/cpu/gemm/quantized/types.h"
#include "native/emulator/tiles/tile_emulator.h"
#include "native/emulator/tiles/tile_twin.h"
#include "native/module/gemm.h"

namespace py = pybind11;

namespace imp::bindings {

namespace {

// The portable kernel's row with another function: it needs no instruction set.
template <class Weights, class Tiles = cpu::TileTwin<>>
GemmKernel twin_of(const char* portable, const char* name) {
  GemmKernel kernel = *std::ranges::find(cpu::kernel_list(), portable, &GemmKernel::name);
  kernel.name = name;
  kernel.run = cpu::multiply_in_tiles<Weights, Tiles>;
  return kernel;
}

#if IMP_X86
// The compiled kernel, whose other instructions are of AVX-512.
template <void (*run)(const GemmArgs&)>
GemmKernel emulated(const char* real, const char* name) {
  GemmKernel kernel = *std::ranges::find(cpu::kernel_list(), real, &GemmKernel::name);
  kernel.name = name;
  kernel.run = +[](const GemmArgs& args) { run_with_emulated_tiles(run, args); };
  kernel.needs = needs::avx512vnni;
  return kernel;
}
#endif

using Bytes = py::array_t<std::uint8_t, py::array::c_style>;

// Tile 0 plus the products of tiles 1 and 2, each of so many rows and bytes, read from and written to whole arrays.
Bytes tile_product(const std::vector<int>& rows, const std::vector<int>& row_bytes, const Bytes& sums, const Bytes& a,
                   const Bytes& b) {
  cpu::TileConfig config;
  for (std::size_t tile = 0; tile < 3; ++tile) {
    config.rows[tile] = static_cast<std::uint8_t>(rows.at(tile));
    config.row_bytes[tile] = static_cast<std::uint16_t>(row_bytes.at(tile));
  }
  cpu::TileTwin<> tiles(config);
  tiles.load(0, sums.data(), sums.strides(0));
  tiles.load(1, a.data(), a.strides(0));
  tiles.load(2, b.data(), b.strides(0));
  tiles.add_products(0, 1, 2);
  Bytes out({sums.shape(0), sums.shape(1)});
  std::copy_n(sums.data(), sums.size(), out.mutable_data());
  tiles.store(0, out.mutable_data(), out.strides(0));
  return out;
}

}  // namespace

std::vector<GemmKernel> test_kernels() {
  std::vector<GemmKernel> kernels;
#if IMP_X86
#define IMP_ADD_EMULATED(name, Type, isa) \
  kernels.push_back(emulated<cpu::run_##name##_##isa>(#name "_" #isa, #name "_emulated"));
  IMP_GROUP_SCALED_TYPES(IMP_ADD_EMULATED, amxint8)
#undef IMP_ADD_EMULATED
#endif
#define IMP_ADD_TWIN(name, Type, isa) kernels.push_back(twin_of<cpu::Type>(#name "_generic", #name "_twin"));
  IMP_GROUP_SCALED_TYPES(IMP_ADD_TWIN, any)
#undef IMP_ADD_TWIN
  return kernels;
}

std::vector<GemmKernel> all_kernels() {
  std::vector<GemmKernel> kernels = test_kernels();
  kernels.insert(kernels.end(), cpu::kernel_list().begin(), cpu::kernel_list().end());
  return kernels;
}

GemmKernel broken_twin() {
  return twin_of<cpu::Q8_0, cpu::TileTwin<std::uint8_t>>("q8_0_generic", "broken_twin");
}

void register_testing_tile_kernels(py::module_& module) {
  module.def("tile_product", &tile_product, py::arg("rows"), py::arg("row_bytes"), py::arg("sums"), py::arg("a"),
             py::arg("b"));
}

}  // namespace imp::bindings
