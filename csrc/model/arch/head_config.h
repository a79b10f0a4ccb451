// The configuration of a draft head: one layer that guesses tokens from hidden rows of a larger model, its target.
#pragma once

#include <string>
#include <vector>

#include "model/arch/tensor_names.h"
#include "model/config/model_config.h"

namespace imp {

// The tensors of a head outside its layer. An empty name: the head has no such tensor.
struct HeadTensors {
  std::string embedding;                    // [vocab, hidden]; empty: the target's
  std::string embedding_norm, hidden_norm;  // of both halves that the head joins
  std::string tap_norm;                     // of all taps side by side
  std::string fuse;
  std::string final_norm;   // empty: the target's
  std::string output_head;  // [rows, hidden]; empty: the target's
  std::string ids;          // 64-bit integers: row i of `output_head` is token i + ids[i]; empty: token i
};

inline constexpr int kNoTargetRope = -1;

// How heads differ. A head reads two rows at a position: the embedding e of the token after it, and a hidden row h of
// the target. Further guesses take the head's own output for h.
struct HeadConfig {
  std::string kind;        // "nextn" or "eagle3"
  ModelConfig layer = {};  // its only layer; vocab_size is the number of rows of its output head
  int embedding_rows = 0;
  int target_rope = kNoTargetRope;  // the RoPE of the target that its layer shares, or kNoTargetRope
  // The residual stream before these layers of the target, side by side, is h. Empty: h is the output of the target's
  // final norm.
  std::vector<int> taps = {};
  // Whether the halves norm(e) and norm(h) side by side are what attention reads (EAGLE-3), where h is the residual
  // stream, and a product makes h from the taps. Otherwise a product of the halves is the residual stream (NextN).
  bool joins_for_attention = false;
  bool hidden_comes_first = false;  // of the halves
  bool residual_is_normed = false;  // of EAGLE-3: the residual stream is norm(h)
  bool feeds_back_normed = true;    // the head's output is what the final norm returns, else what it reads
  HeadTensors tensors = {};
  TensorNames names = {};         // of its layer, which is the first one of these names, and of a decoder's kind
  std::string joined_layer = {};  // of EAGLE-3: what the names of the layer's tensors begin with instead of a number

  int hidden_width() const noexcept {  // of h of the target
    return layer.hidden_size * (taps.empty() ? 1 : static_cast<int>(taps.size()));
  }
  int attention_width() const noexcept { return layer.hidden_size * (joins_for_attention ? 2 : 1); }
};

}  // namespace imp
