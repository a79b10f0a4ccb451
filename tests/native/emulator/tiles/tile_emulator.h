// Runs AMX's instructions on tiles on processors without them.
#pragma once

#include "backend/gemm_args.h"

namespace imp {

// Calls run(args). Meanwhile, a signal handler does on portable tiles what an illegal instruction on tiles says, so
// only one thread at a time may call this. On a processor with AMX nothing is illegal.
void run_with_emulated_tiles(void (*run)(const GemmArgs&), const GemmArgs& args);

}  // namespace imp
