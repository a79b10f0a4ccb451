#include "model/config/fact_text.h"

namespace imp {

std::string text_of(NormPlacement value) {
  switch (value) {
    case NormPlacement::pre:
      return "pre";
    case NormPlacement::post:
      return "post";
    case NormPlacement::pre_and_post:
      return "pre_and_post";
    case NormPlacement::after_sum:
      return "after_sum";
  }
  return "pre";
}

std::string text_of(QkNorm value) {
  switch (value) {
    case QkNorm::none:
      return "no";
    case QkNorm::head:
      return "yes";
    case QkNorm::rotated_head:
      return "after rotation";
    case QkNorm::width:
      return "of all heads together";
    case QkNorm::layer:
      return "by LayerNorm";
  }
  return "no";
}

std::string text_of(GatedActivation value) {
  switch (value) {
    case GatedActivation::silu:
      return "silu";
    case GatedActivation::gelu_tanh:
      return "gelu_tanh";
    case GatedActivation::gelu_erf:
      return "gelu_erf";
  }
  return "silu";
}

std::string text_of(PlainActivation value) {
  switch (value) {
    case PlainActivation::gelu_tanh:
      return "gelu_tanh";
    case PlainActivation::gelu_erf:
      return "gelu_erf";
    case PlainActivation::relu_squared:
      return "relu_squared";
    case PlainActivation::tanh:
      return "tanh";
    case PlainActivation::xielu:
      return "xielu";
  }
  return "gelu_tanh";
}

std::string text_of(Pooling value) {
  return std::string(name_of(value));
}

std::string text_of(RopeStyle value) {
  return value == RopeStyle::adjacent ? "adjacent" : "halves";
}

std::string text_of(RopeScalingKind value) {
  switch (value) {
    case RopeScalingKind::none:
      return "none";
    case RopeScalingKind::linear:
      return "linear";
    case RopeScalingKind::yarn:
      return "yarn";
    case RopeScalingKind::wavelength:
      return "llama3";
    case RopeScalingKind::longrope:
      return "longrope";
    case RopeScalingKind::dynamic:
      return "dynamic";
  }
  return "none";
}

}  // namespace imp
