// The choice of experts on the CPU, and the order in which their rows are grouped.
#pragma once

#include "backend/cpu/cpu_ops.h"
#include "backend/experts.h"

namespace imp::cpu {

// Chooses the experts of one row and weighs them; scores [n_experts] are used up.
void choose_experts(const CpuOps& ops, const ExpertRouting& routing, float* scores, std::int32_t* experts,
                    float* weights);

// Fills in places and begins from the experts chosen.
void group_by_expert(const ExpertRows& rows);

}  // namespace imp::cpu
