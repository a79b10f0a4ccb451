// Llama and what is built like it; Mistral's sliding window among them.
#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/hf_facts.h"

namespace imp {

void read_llama_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  // GGUF permutes the rows of q and k of this architecture, so that pairs stand side by side.
  read_gguf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts, kGgufNames);
  read_gguf_window(facts);
}

void read_llama_hf(FactReader& facts) {
  read_hf_decoder(facts, kHfNames, 0);
  // Rows are permuted while they are read, as GGUF has them: one model has the same bits from either format.
  read_hf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts, kHfNames);
}

void read_mistral_hf(FactReader& facts) {
  read_llama_hf(facts);
  read_hf_windows(facts, {.window = 0, .period = facts.config.n_layers + 1, .rope = 0});
}

}  // namespace imp
