// Divides linear attention among the threads.
#pragma once

#include <span>

#include "backend/attention.h"
#include "backend/cpu/kv/cpu_kv_pool.h"
#include "backend/cpu/ops/cpu_ops.h"
#include "backend/delta_rule.h"
#include "backend/rows.h"
#include "base/thread_pool.h"

namespace imp::cpu {

// One layer of recurrent state, and the rows of a batch that use it.
struct RecurrentLayer {
  const CpuKvPool& pool;
  int layer;
  std::span<const SequenceRows> sequences;  // their rows follow each other from row 0 on
};

// As Backend::short_conv and Backend::delta_rule.
void run_short_conv(const CpuOps& ops, ThreadPool& threads, const RecurrentLayer& at, Rows x, const float* weight,
                    Rows out);
void run_delta_rule(const CpuOps& ops, ThreadPool& threads, const RecurrentLayer& at, const DeltaRule& rule,
                    const DeltaRows& rows, Rows out);

}  // namespace imp::cpu
