# The sources of the CUDA backend for the emulated device, as C++ in a separate namespace.
set(tests ${CMAKE_CURRENT_LIST_DIR}/../..)
set(csrc ${tests}/../csrc)
file(GLOB_RECURSE emulated_kernels CONFIGURE_DEPENDS ${csrc}/backend/cuda/*.cu)
list(FILTER emulated_kernels EXCLUDE REGEX "/device/runtime\\.cu$")
# A C++ compiler warns about these; nvcc does not.
set_source_files_properties(${emulated_kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
                            "-Wno-unknown-pragmas;-Wno-pedantic")
file(GLOB_RECURSE emulated_sources CONFIGURE_DEPENDS ${csrc}/backend/cuda/*.cpp)
file(GLOB emulator CONFIGURE_DEPENDS ${tests}/native/emulator/*.cpp ${tests}/native/gpu/*.cpp)
list(APPEND emulated_sources ${emulated_kernels} ${emulator})

# The headers in overlay/ replace those of the same names in csrc.
function(imp_emulate target)
  target_include_directories(${target} BEFORE PRIVATE ${tests}/native/emulator/overlay ${csrc} ${tests})
  target_compile_definitions(${target} PRIVATE cuda=cuda_emulated "IMP_CUDA_IMAGES=\"80-virtual\"")
endfunction()
