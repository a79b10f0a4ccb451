// The table of families and kinds of checkpoints that imp does not run.
#include "model/arch/unsupported.h"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "base/printable.h"

namespace imp {
namespace {

struct Unsupported {
  std::string_view name;  // in GGUF or in config.json
  std::string_view what;
  std::string_view advice;
};

constexpr std::string_view kOtherEngine = "llama.cpp runs it";
constexpr std::string_view kOtherEncoder = "BERT and embedding models of decoders run";
constexpr std::string_view kGiveModel = "give the file of the language model itself";
constexpr std::string_view kGiveProjector = "give the language model, and this file as model.projector";
constexpr std::string_view kGiveHead = "give the model, and this as speculation.head";
constexpr std::string_view kGemma3 = "a Gemma 3 model of its size runs";

// Families by name.
constexpr std::array kUnsupportedFamilies = {
    Unsupported{"qwen2vl", "Qwen2-VL", "Qwen3-VL answers text"},
    Unsupported{"qwen2_vl", "Qwen2-VL", "Qwen3-VL answers text"},
    Unsupported{"qwen2_5_vl", "Qwen2.5-VL", "Qwen3-VL answers text"},
    Unsupported{"gemma4-assistant", "the assistant of a Gemma 4, a draft head without its model", kGiveHead},
    Unsupported{"gemma4_assistant", "the assistant of a Gemma 4, a draft head without its model", kGiveHead},
    Unsupported{"gemma4_unified_assistant", "the assistant of a Gemma 4, a draft head without its model", kGiveHead},
    Unsupported{"gemma3n", "Gemma 3n", kGemma3},
    Unsupported{"gemma3n_text", "Gemma 3n", kGemma3},
    Unsupported{"deepseek", "DeepSeek with experts", "its distilled Qwen and Llama models run"},
    Unsupported{"deepseek2", "DeepSeek V2 or V3, with latent attention", "its distilled Qwen and Llama models run"},
    Unsupported{"deepseek_v2", "DeepSeek V2, with latent attention", "its distilled Qwen and Llama models run"},
    Unsupported{"deepseek_v3", "DeepSeek V3, with latent attention", "its distilled Qwen and Llama models run"},
    Unsupported{"kimi_k2", "Kimi K2, with latent attention", kOtherEngine},
    Unsupported{"glm4moe", "GLM 4.5 or later, with experts", "GLM 4 of 9B and 32B runs"},
    Unsupported{"glm4_moe", "GLM 4.5 or later, with experts", "GLM 4 of 9B and 32B runs"},
    Unsupported{"glm4_moe_lite", "GLM 4.7 Flash, with latent attention", "GLM 4 of 9B and 32B runs"},
    Unsupported{"chatglm", "ChatGLM", "GLM 4 of 2025 runs"},
    Unsupported{"ernie4_5-moe", "ERNIE 4.5 with experts", "ERNIE 4.5 of 0.3B runs"},
    Unsupported{"ernie4_5_moe", "ERNIE 4.5 with experts", "ERNIE 4.5 of 0.3B runs"},
    Unsupported{"llama4", "Llama 4", "Llama 3 runs"},
    Unsupported{"llama4_text", "Llama 4", "Llama 3 runs"},
    Unsupported{"mllama", "Llama 3.2 Vision", "Llama 3.2 of text runs"},
    Unsupported{"minimax-m2", "MiniMax M2", kOtherEngine},
    Unsupported{"minimax_m2", "MiniMax M2", kOtherEngine},
    Unsupported{"lfm2", "LFM2, with short convolutions", kOtherEngine},
    Unsupported{"lfm2moe", "LFM2 with experts", kOtherEngine},
    Unsupported{"lfm2_moe", "LFM2 with experts", kOtherEngine},
    Unsupported{"granitehybrid", "Granite 4 with Mamba layers", "Granite 3, and Granite 4 without Mamba, run"},
    Unsupported{"nemotron_h", "Nemotron with Mamba layers", kOtherEngine},
    Unsupported{"nemotron_h_moe", "Nemotron with Mamba layers", kOtherEngine},
    Unsupported{"falcon-h1", "Falcon-H1, with Mamba layers", kOtherEngine},
    Unsupported{"falcon_h1", "Falcon-H1, with Mamba layers", kOtherEngine},
    Unsupported{"mamba", "Mamba", kOtherEngine},
    Unsupported{"mamba2", "Mamba 2", kOtherEngine},
    Unsupported{"jamba", "Jamba, with Mamba layers", kOtherEngine},
    Unsupported{"rwkv6", "RWKV", kOtherEngine},
    Unsupported{"rwkv7", "RWKV", kOtherEngine},
    Unsupported{"bitnet", "BitNet", kOtherEngine},
    Unsupported{"phi2", "Phi 2", "Phi 3 and Phi 4 run"},
    Unsupported{"phi", "Phi 1 or 2", "Phi 3 and Phi 4 run"},
    Unsupported{"phimoe", "Phi 3.5 with experts", "Phi 3.5 mini runs"},
    Unsupported{"gpt2", "GPT-2", kOtherEngine},
    Unsupported{"gptneox", "GPT-NeoX", kOtherEngine},
    Unsupported{"gpt_neox", "GPT-NeoX", kOtherEngine},
    Unsupported{"falcon", "Falcon", kOtherEngine},
    Unsupported{"mpt", "MPT", kOtherEngine},
    Unsupported{"bloom", "BLOOM", kOtherEngine},
    Unsupported{"olmo", "OLMo 1", "OLMo 2 and 3 run"},
    Unsupported{"olmoe", "OLMoE", "OLMo 2 and 3 run"},
    Unsupported{"exaone", "EXAONE 3", "EXAONE 4 runs"},
    Unsupported{"hunyuan-moe", "Hunyuan with experts", "dense Hunyuan models run"},
    Unsupported{"hunyuan_v1_moe", "Hunyuan with experts", "dense Hunyuan models run"},
    Unsupported{"internlm2", "InternLM 2", kOtherEngine},
    Unsupported{"minicpm", "MiniCPM", kOtherEngine},
    Unsupported{"stablelm", "StableLM", kOtherEngine},
    Unsupported{"t5", "T5, with an encoder", kOtherEngine},
    Unsupported{"clip", "a vision projector (mmproj), without its language model", kGiveProjector},
    Unsupported{"clip_vision_model", "an image encoder, without a language model", kGiveModel},
    Unsupported{"siglip_vision_model", "an image encoder, without a language model", kGiveModel},
    Unsupported{"whisper", "Whisper, a speech recognition model", "imp reads text and images"},
    Unsupported{"nomic-bert-moe", "an embedding model (Nomic)", kOtherEncoder},
    Unsupported{"neo-bert", "an embedding model (NeoBERT)", kOtherEncoder},
    Unsupported{"jina-bert-v2", "an embedding model (Jina)", kOtherEncoder},
    Unsupported{"jina-bert-v3", "an embedding model (Jina)", kOtherEncoder},
    Unsupported{"eurobert", "an embedding model (EuroBERT)", kOtherEncoder},
    Unsupported{"t5encoder", "an encoder (T5)", kOtherEncoder},
};

// Classes of transformers by the end of their name; the first that matches counts.
constexpr std::array kTasks = {
    Unsupported{"ForSequenceClassification", "a classifier or reranker",
                "imp runs the rerankers of encoders with one label"},
    Unsupported{"ForTokenClassification", "a classifier of tokens", "imp generates text"},
    Unsupported{"ForQuestionAnswering", "a model that marks answers in a text", "imp generates text"},
    Unsupported{"ForMaskedLM", "an encoder that fills in masked tokens", "imp generates text"},
    Unsupported{"RewardModel", "a reward model", "imp generates text"},
    Unsupported{"Model", "an embedding model",
                "imp reads it from a folder with its modules.json, or with the class of the language model"},
};

[[noreturn]] void refuse_kind(const ModelFile& file, std::string_view found, const Unsupported& kind) {
  throw ModelError(Reason::MODEL_UNSUPPORTED, file.metadata().where() + ": " + std::string(found) + ": this is " +
                                                  std::string(kind.what) + "; " + std::string(kind.advice));
}

std::string key_text(std::string_view key, std::string_view value) {
  return "key " + std::string(key) + ": " + std::string(value);
}

// The type of a GGUF file; files of models say "model" or nothing.
void refuse_types(const ModelFile& file) {
  const auto type = file.metadata().find_string("general.type").value_or("model");
  if (type == "adapter") {
    refuse_kind(file, key_text("general.type", type),
                {type, "a LoRA adapter, not a model", "merge it into its base model and give that file"});
  }
  if (type == "mmproj") {
    refuse_kind(file, key_text("general.type", type),
                {type, "a vision projector (mmproj), without its language model", kGiveProjector});
  }
}

// Whether a checkpoint of this class makes vectors of texts.
bool makes_vectors(const ModelFile& file, const Architecture& architecture, std::string_view name) {
  const bool has_modules = file.metadata().contains("modules.0.type");
  if (!architecture.is_encoder) return has_modules && name.ends_with("Model") && !name.ends_with("RewardModel");
  return name.ends_with("Model") || name.ends_with("ForSequenceClassification") ||
         (has_modules && name.ends_with("ForMaskedLM"));
}

}  // namespace

void refuse_other_kinds(const ModelFile& file) {
  const bool is_hub = file.format() == "safetensors";
  const std::string_view key = is_hub ? "model_type" : "general.architecture";
  if (!is_hub) refuse_types(file);
  const std::string_view name = file.metadata().string(key);
  for (const Unsupported& family : kUnsupportedFamilies) {
    if (family.name == name) refuse_kind(file, key_text(key, name), family);
  }
}

void refuse_other_tasks(const ModelFile& file, const Architecture& architecture) {
  const MetadataValue* value = file.metadata().find("architectures");
  const auto* classes = value ? std::get_if<StringArray>(&value->value) : nullptr;
  if (!classes || architecture.format != ModelFormat::hf) return;
  const Unsupported* other = nullptr;
  std::string_view found;
  for (std::size_t i = 0; i < classes->size(); ++i) {
    const std::string_view name = (*classes)[i];
    if (name.ends_with("ForCausalLM") || name.ends_with("ForConditionalGeneration")) return;
    if (makes_vectors(file, architecture, name)) return;
    for (const Unsupported& task : kTasks) {
      if (other != nullptr || !name.ends_with(task.name)) continue;
      other = &task;
      found = name;
    }
  }
  if (other != nullptr) refuse_kind(file, key_text("architectures", printable(found)), *other);
}

}  // namespace imp
