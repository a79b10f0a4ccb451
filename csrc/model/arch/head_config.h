// The configuration of a draft head: a few layers that guess tokens from hidden rows of a larger model, its target.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "model/arch/tensor_names.h"
#include "model/config/model_config.h"

namespace imp {

// The tensors of a head outside its layers. An empty name: the head has no such tensor.
struct HeadTensors {
  std::string embedding;                    // [vocab, hidden]; empty: the target's
  std::string embedding_norm, hidden_norm;  // of both halves that the head joins
  std::string tap_norm;                     // of all taps side by side
  std::string fuse;
  std::string final_norm;   // empty: the target's
  std::string output_head;  // [rows, hidden]; empty: the target's
  std::string feed_back;    // [target hidden, hidden]: makes the next h; empty: h is the head's output
  std::string ids;          // 64-bit integers: row i of `output_head` is token i + ids[i]; empty: token i
  std::string centroids;    // [clusters, hidden]; empty: every token is scored
  std::string clusters;     // 64-bit integers: the tokens of each cluster
};

// A head may score only the tokens of some clusters for a row: those whose centroids have the greatest products with
// it.
struct HeadClusters {
  int n = 0;  // of equal size; 0: every token is scored
  int n_used = 0;
};

// How heads differ. A head reads two rows at a position: the embedding e of the token after it, and a hidden row h of
// the target. Further guesses take the head's own output for h.
struct HeadConfig {
  std::string kind;        // "nextn", "eagle3" or "assistant"
  ModelConfig stack = {};  // its layers, one except in an assistant; vocab_size: the rows of its output head
  int target_hidden = 0;   // width of the target's hidden rows
  int embedding_rows = 0;
  // The RoPEs of the target that its layers share: those of `stack`, in order. Empty: it has its own.
  std::vector<int> target_ropes = {};
  // Its layers attend to the cells of the target's layers `kv`, and it has none itself (Gemma 4's assistant). All its
  // guesses of a round stand at one position: that of the token after the target's last cell.
  bool reads_target = false;
  // The residual stream before these layers of the target, side by side, is h. Empty: h is the output of the target's
  // final norm.
  std::vector<int> taps = {};
  // Whether the halves norm(e) and norm(h) side by side are what attention reads (EAGLE-3), where h is the residual
  // stream, and a product makes h from the taps. Otherwise a product of the halves is the residual stream (NextN).
  bool joins_for_attention = false;
  bool hidden_comes_first = false;  // of the halves
  bool residual_is_normed = false;  // of EAGLE-3: the residual stream is norm(h)
  bool feeds_back_normed = true;    // the head's output is what the final norm returns, else what it reads
  HeadClusters clusters = {};
  HeadTensors tensors = {};
  TensorNames names = {};  // of its layers, which are the first ones of these names, and of a decoder's kind
  std::set<std::string> read_tensors = {};  // whose values are part of `stack`
  std::string joined_layer = {};  // of EAGLE-3: what the names of the layer's tensors begin with instead of a number

  int hidden_width() const noexcept {  // of h of the target
    return target_hidden * (taps.empty() ? 1 : static_cast<int>(taps.size()));
  }
  int attention_width() const noexcept { return stack.hidden_size * (joins_for_attention ? 2 : 1); }
};

}  // namespace imp
