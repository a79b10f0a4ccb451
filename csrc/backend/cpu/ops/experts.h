// Routing of rows to experts on the CPU, and grouping of the rows.
#pragma once

#include "backend/cpu/ops/cpu_ops.h"
#include "backend/experts.h"

namespace imp::cpu {

// Chooses the experts of one row and their weights. Overwrites scores [n_experts].
void choose_experts(const CpuOps& ops, const ExpertRouting& routing, float* scores, std::int32_t* experts,
                    float* weights);

// Fills in grouped_rows and begins from the chosen experts.
void group_by_expert(const ExpertRows& rows);

}  // namespace imp::cpu
