// Llama and what is built like it; Mistral's sliding window among them.
#include "model/arch/architecture.h"
#include "model/arch/decoder_facts.h"

namespace imp {

void read_llama(FactReader& facts) {
  read_decoder(facts);
  // GGUF permutes the rows of q and k of this architecture, so that pairs stand side by side.
  read_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
  read_window(facts);
}

}  // namespace imp
