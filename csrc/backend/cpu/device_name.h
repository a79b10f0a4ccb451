// The name of the processor.
#pragma once

#include <string>

namespace imp::cpu {

// The vendor's name, such as "AMD EPYC 9575F 64-Core Processor"; "CPU" if it reports none.
std::string processor_name();

}  // namespace imp::cpu
