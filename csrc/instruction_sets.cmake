# The flags of each instruction set, and the sets that the target processor's family has.
#
# A file whose name ends in an instruction set is compiled for it and runs only if the CPU has it.
set(flags_avx2 -mavx2 -mfma -mf16c -mprfchw)  # every processor with AVX2 takes PREFETCHW
set(flags_avx2vnni ${flags_avx2} -mavxvnni)
set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND flags_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)  # false alarms inside its own avx512fintrin.h
endif()
set(flags_avx512vnni ${flags_avx512} -mavx512vnni)
set(flags_avx512bf16 ${flags_avx512vnni} -mavx512bf16)
set(flags_amxint8 ${flags_avx512vnni} -mamx-tile -mamx-int8)
set(flags_neondot -march=armv8.2-a+dotprod)
set(flags_neoni8mm -march=armv8.2-a+dotprod+i8mm)

# A definition for code that differs between families; empty for a family without its own kernels.
set(imp_processor_definition)
set(imp_instruction_sets)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(imp_processor_definition IMP_X86=1)
  set(imp_instruction_sets avx2 avx2vnni avx512 avx512vnni avx512bf16 amxint8)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(imp_processor_definition IMP_ARM=1)
  set(imp_instruction_sets neondot neoni8mm)
endif()

# Gives the files of instruction sets their flags, and removes those for other processors from the list.
function(imp_sources_for_this_processor list)
  set(kept)
  foreach(source IN LISTS ${list})
    if(source MATCHES "_(avx2|avx2vnni|avx512|avx512vnni|avx512bf16|amxint8|neondot|neoni8mm)\\.cpp$")
      set(isa ${CMAKE_MATCH_1})
      if(NOT isa IN_LIST imp_instruction_sets)
        continue()
      endif()
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags_${isa}}")
    endif()
    list(APPEND kept ${source})
  endforeach()
  set(${list} ${kept} PARENT_SCOPE)
endfunction()
