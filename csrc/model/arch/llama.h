// What other families take from Llama.
#pragma once

#include "model/arch/fact_reader.h"
#include "model/arch/hf_facts.h"

namespace imp {

void read_llama_gguf(FactReader& facts);
void read_llama_base_hf(FactReader& facts, const HfTraits& traits);

}  // namespace imp
