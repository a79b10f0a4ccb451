// The bindings of the parts of media that need no engine: the spans of a sequence, the numbers, and the store.
#include <pybind11/stl.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engine/data/engine_options.h"
#include "engine/media/media_numbers.h"
#include "engine/media/media_store.h"
#include "engine/sequence/sequence.h"
#include "native/module/engine.h"
#include "native/script/script_backend.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// A sequence, with its spans numbered by the test.
struct Ledger {
  void add_text(const std::vector<std::int32_t>& ids) {
    sequence.tokens.insert(sequence.tokens.end(), ids.begin(), ids.end());
  }
  void add_media(MediaSpan span, std::int32_t number) {
    span.first = static_cast<int>(sequence.tokens.size());
    span.number = number;
    sequence.tokens.insert(sequence.tokens.end(), static_cast<std::size_t>(span.n_cells), number);
    sequence.media.append(std::move(span));
  }
  // Position of the next token.
  int next_position() const { return sequence.position_of(static_cast<int>(sequence.tokens.size()), 0); }

  Sequence sequence;
};

void register_ledger(py::module_& module) {
  py::class_<Ledger>(module, "Ledger")
      .def(py::init<>())
      .def("add_text", &Ledger::add_text)
      .def("add_media", &Ledger::add_media, py::arg("span"), py::arg("number"))
      .def("cut", [](Ledger& self, int n) { self.sequence.cut_tokens(n); })
      .def("copy",
           [](const Ledger& self) {
             auto copy = std::make_unique<Ledger>();
             copy->sequence.tokens = self.sequence.tokens;
             copy->sequence.media.copy_from(self.sequence.media);
             return copy;
           })
      .def_property_readonly("tokens", [](const Ledger& self) { return self.sequence.tokens; })
      .def_property_readonly("last_media_end", [](const Ledger& self) { return self.sequence.media.last_end(); })
      .def_property_readonly("text_after_media",
                             [](const Ledger& self) {
                               const auto text = self.sequence.text_after_media();
                               return std::vector(text.begin(), text.end());
                             })
      .def_property_readonly("next_position", &Ledger::next_position)
      .def_property_readonly("spans",
                             [](const Ledger& self) {
                               std::vector<std::pair<int, std::int32_t>> spans;
                               for (const MediaSpan& span : self.sequence.media.all()) {
                                 spans.emplace_back(span.first, span.number);
                               }
                               return spans;
                             })
      .def("is_text_from", [](const Ledger& self, int cell) { return self.sequence.is_text_from(cell); })
      .def("may_cut", [](const Ledger& self, int cell) { return self.sequence.media.may_cut(cell); })
      .def(
          "position_of", [](const Ledger& self, int cell, int plane) { return self.sequence.position_of(cell, plane); },
          py::arg("cell"), py::arg("plane") = 0);
}

void register_numbers(py::module_& module) {
  py::class_<MediaNumbers>(module, "MediaNumbers")
      .def(py::init<std::int64_t, std::size_t>(), py::arg("n_numbers") = EngineOptions{}.media_numbers,
           py::arg("most_known") = MediaNumbers::kMostKnown)
      .def("number_of", &MediaNumbers::number_of)
      .def("is_used_up", &MediaNumbers::is_used_up)
      .def("restart",
           [](MediaNumbers& self, const std::vector<std::int32_t>& held) { self.restart({held.begin(), held.end()}); });
  module.attr("LAST_MEDIA_TOKEN") = kLastMediaToken;
}

NeededBy needed_by(const std::string& word) {
  if (word == "running") return NeededBy::running;
  return word == "waiting" ? NeededBy::waiting : NeededBy::nobody;
}

// A store of rows with one value.
struct PythonStore {
  explicit PythonStore(int n_rows) : store(backend, 1, n_rows) {}
  static EncodingKey key(std::int32_t number, std::uint64_t scope) { return {{.low = scope}, number}; }

  void add(std::int32_t number, std::vector<float> values, std::uint64_t scope) {
    store.add(key(number, scope), {values.data(), static_cast<int>(values.size()), 1, 1});
  }
  std::vector<float> values(std::int32_t number, std::uint64_t scope) {
    std::vector<float> found;
    for (const std::int32_t row : store.rows(key(number, scope))) found.push_back(store.arena().data[row]);
    return found;
  }

  testing::ScriptBackend backend;
  MediaStore store;
};

void register_store(py::module_& module) {
  py::class_<PythonStore>(module, "MediaStore")
      .def(py::init<int>())
      .def("add", &PythonStore::add, py::arg("number"), py::arg("values"), py::arg("scope") = 0)
      .def("values", &PythonStore::values, py::arg("number"), py::arg("scope") = 0)
      .def(
          "contains",
          [](const PythonStore& self, std::int32_t number, std::uint64_t scope) {
            return self.store.contains(PythonStore::key(number, scope));
          },
          py::arg("number"), py::arg("scope") = 0)
      .def("need", [](PythonStore& self, std::int32_t number,
                      const std::string& by) { self.store.need(PythonStore::key(number, 0), needed_by(by)); })
      .def("clear_needs", [](PythonStore& self) { self.store.clear_needs(); })
      .def("make_room", [](PythonStore& self, int n_rows,
                           const std::string& by) { return self.store.make_room(n_rows, needed_by(by)); })
      .def("evict_unneeded", [](PythonStore& self) { self.store.evict_unneeded(); })
      .def_property_readonly("n_rows_kept", [](const PythonStore& self) { return self.store.n_rows_kept(); });
}

}  // namespace

void register_testing_media(py::module_& module) {
  register_ledger(module);
  register_numbers(module);
  register_store(module);
}

}  // namespace imp::bindings
