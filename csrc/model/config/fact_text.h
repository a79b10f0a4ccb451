// The words for what a configuration chooses.
#pragma once

#include <string>

#include "model/config/model_config.h"

namespace imp {

std::string text_of(NormPlacement value);
std::string text_of(QkNorm value);
std::string text_of(GatedActivation value);
std::string text_of(PlainActivation value);
std::string text_of(Pooling value);
std::string text_of(RopeStyle value);
std::string text_of(RopeScalingKind value);

}  // namespace imp
