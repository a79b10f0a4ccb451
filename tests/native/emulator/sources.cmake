# What the CUDA backend on the emulated device is made of, as C++ in a namespace of its own beside the real one's.
set(tests ${CMAKE_CURRENT_LIST_DIR}/../..)
set(csrc ${tests}/../csrc)
file(GLOB_RECURSE emulated_kernels CONFIGURE_DEPENDS ${csrc}/backend/cuda/*.cu)
list(FILTER emulated_kernels EXCLUDE REGEX "/device/runtime\\.cu$")
# What nvcc understands and a C++ compiler would remark on.
set_source_files_properties(${emulated_kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
                            "-Wno-unknown-pragmas;-Wno-pedantic")
file(GLOB_RECURSE emulated_sources CONFIGURE_DEPENDS ${csrc}/backend/cuda/*.cpp)
file(GLOB emulator CONFIGURE_DEPENDS ${tests}/native/emulator/*.cpp ${tests}/native/gpu/*.cpp)
list(APPEND emulated_sources ${emulated_kernels} ${emulator})

# The one place where csrc meets the emulator: headers in overlay/ are found before those of the same names in csrc.
function(imp_emulate target)
  target_include_directories(${target} BEFORE PRIVATE ${tests}/native/emulator/overlay ${csrc} ${tests})
  target_compile_definitions(${target} PRIVATE cuda=cuda_emulated "IMP_CUDA_IMAGES=\"80-virtual\"")
endfunction()
