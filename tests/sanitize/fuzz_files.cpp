// Feeds broken files to the readers. A reader must refuse a file with a typed error, or read it to the end.
//
// usage: fuzz_files DIRECTORY COUNT SEED      reads the files of DIRECTORY, and then mutants of them
//
// The target has libFuzzer's signature, so that it can also be linked with `clang++ -fsanitize=fuzzer`.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "files/check_data.h"
#include "files/gguf.h"
#include "files/json_metadata.h"
#include "files/open_model_file.h"
#include "files/safetensors_header.h"
#include "files/safetensors_index.h"
#include "mutate.h"
#include "text/listed_merges.h"
#include "text/scored_merges.h"

namespace {

// A file in memory with a path; each input gets a new one.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : fd_(memfd_create("input", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

struct Outcomes {
  long read = 0;
  long refused = 0;
};

// Refuses only with ModelError; any other exception is a finding, and ends the run.
template <class Reader>
void attempt(Outcomes& outcomes, const Reader& reader) {
  try {
    reader();
    ++outcomes.read;
  } catch (const imp::ModelError&) {
    ++outcomes.refused;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "not a ModelError: %s\n", error.what());
    std::abort();
  }
}

std::vector<std::string_view> strings_of(const imp::Metadata& metadata, std::string_view key) {
  const imp::MetadataValue* const value = metadata.find(key);
  const auto* const strings = value == nullptr ? nullptr : std::get_if<imp::StringArray>(&value->value);
  std::vector<std::string_view> views;
  for (std::size_t i = 0; strings != nullptr && i < strings->size(); ++i) views.push_back((*strings)[i]);
  return views;
}

// Builds the tables of the file's vocabulary, and encodes the file with them.
void encode_with_its_vocabulary(const imp::Metadata& metadata, std::string_view text) {
  std::vector<std::string_view> names = strings_of(metadata, "tokenizer.ggml.tokens");
  for (int byte = 0; byte < 256; ++byte) names.push_back(imp::fallback_name(static_cast<unsigned char>(byte)));
  const std::vector<std::string_view> lines = strings_of(metadata, "tokenizer.ggml.merges");
  std::vector<float> scores(names.size());
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<float>(names[i].size() * 7 % 5);
  const std::vector<std::size_t> ends{text.size() / 3, text.size()};
  std::vector<std::int32_t> ids;
  imp::ScoredMerges(names, scores).encode({text, ends, {}}, ids);
  for (const bool is_byte_level : {true, false}) {
    for (const bool ignores_merges : {true, false}) {
      imp::ListedMerges(names, lines, {is_byte_level, ignores_merges}).encode({text, ends, {}}, ids);
    }
  }
  for (const std::string_view name : names) imp::spelled_bytes(name), imp::without_marks(name);
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= names.size()) std::abort();
  }
}

Outcomes read_every_way(const std::uint8_t* data, std::size_t size) {
  const MemoryFile file(data, size);
  const std::string path = file.path();
  Outcomes outcomes;
  attempt(outcomes, [&] { imp::check_data(*imp::open_gguf(path), imp::Scan::VALUES); });
  attempt(outcomes, [&] { imp::open_model_file(path); });
  attempt(outcomes, [&] {
    encode_with_its_vocabulary(imp::open_gguf(path)->metadata(), {reinterpret_cast<const char*>(data), size});
  });
  attempt(outcomes, [&] { imp::safetensors::read_header(imp::File(path)); });
  attempt(outcomes, [&] { imp::safetensors::read_index(imp::File(path)); });
  attempt(outcomes, [&] { imp::read_json_metadata(imp::File(path)); });
  return outcomes;
}

std::vector<std::string> contents_of(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) paths.push_back(entry.path());
  std::ranges::sort(paths);  // the same mutants on every file system
  std::vector<std::string> contents;
  for (const auto& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return contents;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_every_way(data, size);
  return 0;
}

#ifndef IMP_LIBFUZZER
int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: fuzz_files DIRECTORY COUNT SEED\n");
    return 64;
  }
  const std::vector<std::string> seeds = contents_of(argv[1]);
  const long count = std::atol(argv[2]);
  if (seeds.empty() || count < 1) return 64;
  imp::fuzz::Random random(std::strtoull(argv[3], nullptr, 10));
  Outcomes total;
  const long n_seeds = static_cast<long>(seeds.size());
  for (long n = -n_seeds; n < count; ++n) {
    const std::string& seed = seeds[static_cast<std::size_t>(n + n_seeds) % seeds.size()];
    const std::string data = n < 0 ? seed : imp::fuzz::mutated(seed, random);
    const Outcomes outcomes = read_every_way(reinterpret_cast<const std::uint8_t*>(data.data()), data.size());
    total.read += outcomes.read;
    total.refused += outcomes.refused;
  }
  std::printf("%ld mutants of %zu files: read %ld times, refused %ld times\n", count, seeds.size(), total.read,
              total.refused);
  return total.read > 0 && total.refused > 0 ? 0 : 1;  // a run must have both outcomes to be a test
}
#endif
