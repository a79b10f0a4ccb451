// Vocabularies: the merges of byte-pair encoding, and the bytes of pieces.
#include "bindings/register.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_tokens.h"
#include "text/listed_merges.h"
#include "text/scored_merges.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// Of Python's bytes, which own them.
std::vector<std::string_view> views_of(const py::list& strings) {
  std::vector<std::string_view> views;
  views.reserve(strings.size());
  for (const py::handle string : strings) {
    if (!PyBytes_Check(string.ptr())) throw py::type_error("expected bytes");
    views.emplace_back(PyBytes_AS_STRING(string.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(string.ptr())));
  }
  return views;
}

std::size_t number_at(py::handle pair, Py_ssize_t i) {
  if (PyTuple_Check(pair.ptr()) && PyTuple_GET_SIZE(pair.ptr()) == 2) {
    const std::size_t number = PyLong_AsSize_t(PyTuple_GET_ITEM(pair.ptr(), i));
    if (PyErr_Occurred() == nullptr) return number;
    PyErr_Clear();
  }
  throw FieldInvalid("offsets", "expected pairs of numbers");
}

// The ends in bytes of words that end at these characters.
std::vector<std::size_t> ends_in_bytes(const py::str& text, std::string_view bytes, const py::list& offsets) {
  std::vector<std::size_t> ends;
  ends.reserve(offsets.size());
  const bool is_ascii = py::len(text) == bytes.size();
  std::size_t n_characters = 0, n_bytes = 0;
  for (const py::handle offset : offsets) {
    const std::size_t begin = number_at(offset, 0), end = number_at(offset, 1);
    if (begin != n_characters || end < begin) throw FieldInvalid("offsets", "expected words one after another");
    if (is_ascii) n_bytes = n_characters = end;
    for (; n_characters < end && n_bytes < bytes.size(); ++n_characters) {
      n_bytes += std::max<std::size_t>(utf8_character_bytes(bytes.substr(n_bytes, 4)), 1);
    }
    if (n_characters != end) throw FieldInvalid("offsets", "a word ends after the text");
    ends.push_back(n_bytes);
  }
  return ends;
}

template <class Merges>
std::vector<std::int32_t> encode(const Merges& self, const py::str& text, const py::list& offsets,
                                 const std::vector<std::int32_t>& found) {
  const auto bytes = text.cast<std::string_view>();
  const std::vector<std::size_t> ends = ends_in_bytes(text, bytes, offsets);
  std::vector<std::int32_t> ids;
  const py::gil_scoped_release unlocked;
  self.encode({bytes, ends, found}, ids);
  return ids;
}

constexpr const char* kEncodeDoc =
    "The ids of a text. `offsets` are the first character and the end of each word, one after another. `found` has for "
    "each word the id that it has as a whole, or -1; empty: all are words. Releases the GIL.";

// Most pieces of a SentencePiece vocabulary, and many of a byte-level one, are their bytes.
py::list piece_bytes(const py::list& pieces, bool is_byte_level) {
  py::list found(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const py::handle piece = PyList_GET_ITEM(pieces.ptr(), static_cast<Py_ssize_t>(i));
    const auto spelling = piece.cast<std::string_view>();
    const bool is_plain = std::ranges::all_of(spelling, [](char c) { return c > ' ' && c < 0x7f; });
    std::optional<std::string> bytes;
    if (!is_plain) bytes = is_byte_level ? spelled_bytes(spelling) : without_marks(spelling);
    found[i] = bytes ? py::object(py::bytes(*bytes)) : py::reinterpret_borrow<py::object>(piece);
  }
  return found;
}

}  // namespace

void register_text(py::module_& module) {
  py::class_<ListedMerges>(module, "ListedMerges", "Byte-pair encoding by a list of merges.")
      .def(py::init([](const py::list& names, const py::list& lines, bool is_byte_level, bool ignores_merges) {
             const MergeRules rules{is_byte_level, ignores_merges};
             return std::make_unique<ListedMerges>(views_of(names), views_of(lines), rules);
           }),
           py::arg("names"), py::arg("lines"), py::kw_only(), py::arg("is_byte_level"), py::arg("ignores_merges"),
           "`names` by id; an empty one is none. `lines` by rank: two names with a space between them.")
      .def_property_readonly("knows_all_lines", &ListedMerges::knows_all_lines,
                             "Whether both parts of every line are names, and their joined text too.")
      .def("find", &ListedMerges::find, py::arg("name"), "The id of a name, or -1.")
      .def("encode", &encode<ListedMerges>, py::arg("text"), py::arg("offsets"), py::arg("found"), kEncodeDoc);
  py::class_<ScoredMerges>(module, "ScoredMerges", "Byte-pair encoding by scores.")
      .def(py::init([](const py::list& names, const py::array_t<float, py::array::c_style>& scores) {
             const std::span values(scores.data(), static_cast<std::size_t>(scores.size()));
             return std::make_unique<ScoredMerges>(views_of(names), values);
           }),
           py::arg("names"), py::arg("scores"),
           "By id. An empty name is none. A score that is not finite: no merge becomes this token.")
      .def("find", &ScoredMerges::find, py::arg("name"), "The id of a name, or -1.")
      .def("encode", &encode<ScoredMerges>, py::arg("text"), py::arg("offsets"), py::arg("found"), kEncodeDoc);
  module.def(
      "piece_bytes", &piece_bytes, py::arg("pieces"), py::kw_only(), py::arg("is_byte_level"),
      "The bytes of pieces in text: spelled in GPT-2's byte alphabet, or with U+2581 for spaces. A piece that is "
      "not spelled so stays as it is.");
}

}  // namespace imp::bindings
