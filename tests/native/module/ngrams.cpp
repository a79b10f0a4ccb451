// The bindings of the index of repeats.
#include <pybind11/stl.h>

#include <utility>
#include <vector>

#include "engine/speculation/ngram_index.h"
#include "native/module/engine.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// The index together with the tokens, which a sequence owns.
class IndexedTokens {
 public:
  explicit IndexedTokens(std::size_t n_tokens) { index_.reserve(tokens_, n_tokens); }

  void extend(const std::vector<std::int32_t>& tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    index_.extend(tokens_);
  }
  void truncate(std::size_t n_tokens) {
    index_.truncate(tokens_, n_tokens);
    tokens_.resize(index_.size());
  }
  std::vector<std::pair<std::int32_t, int>> propose(int n_wanted) {
    std::vector<Guess> guesses;
    index_.propose(tokens_, n_wanted, guesses);
    std::vector<std::pair<std::int32_t, int>> found;
    for (const Guess& guess : guesses) found.emplace_back(guess.token, guess.sureness);
    return found;
  }
  // Adds the tokens one by one, with guesses for each, as a generation does that is never right.
  void generate(const std::vector<std::int32_t>& tokens, int n_wanted) {
    std::vector<Guess> guesses;
    for (const std::int32_t token : tokens) {
      tokens_.push_back(token);
      index_.extend(tokens_);
      guesses.clear();
      index_.propose(tokens_, n_wanted, guesses);
    }
  }
  std::size_t size() const { return index_.size(); }

 private:
  std::vector<std::int32_t> tokens_;
  NgramIndex index_;
};

}  // namespace

void register_testing_ngrams(py::module_& module) {
  py::class_<IndexedTokens>(module, "IndexedTokens")
      .def(py::init<std::size_t>(), py::arg("reserved") = 0)
      .def("extend", &IndexedTokens::extend)
      .def("truncate", &IndexedTokens::truncate)
      .def("propose", &IndexedTokens::propose)
      .def("generate", &IndexedTokens::generate)
      .def("__len__", &IndexedTokens::size);
}

}  // namespace imp::bindings
