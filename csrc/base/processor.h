// Identifies the processor.
#pragma once

#include <cstdint>
#include <string>

namespace imp {

enum class ProcessorMaker : std::uint8_t { other, amd, intel };

// The maker, family and model, as x86 processors report them; zero on others.
struct Processor {
  ProcessorMaker maker = ProcessorMaker::other;
  int family = 0;
  int model = 0;
};
Processor detect_processor() noexcept;

// The vendor's name, such as "AMD EPYC 9575F 64-Core Processor"; "CPU" if it reports none.
std::string processor_name();

}  // namespace imp
