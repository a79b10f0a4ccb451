// The name of the processor.
#pragma once

#include <string>

namespace imp::cpu {

// As its maker writes it, such as "AMD EPYC 9575F 64-Core Processor"; "CPU" where it does not say.
std::string processor_name();

}  // namespace imp::cpu
