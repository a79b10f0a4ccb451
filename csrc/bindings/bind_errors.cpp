// Makes one Python exception class for each class in the table of reasons.
#include "bindings/register.h"

#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "base/error.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

void set_python_error(const Error& error) {
  py::dict details;
  for (const auto& [key, value] : error.details()) details[py::str(key)] = value;
  const ReasonRow& row = row_of(error.reason());
  const py::object type = py::module_::import("imp_service._core").attr(row.kind.data());
  py::object raised = type(py::str(std::string(row.name) + ": " + error.what()));
  raised.attr("reason") = row.name;
  raised.attr("message") = error.what();
  raised.attr("details") = details;
  PyErr_SetObject(type.ptr(), raised.ptr());
}

// The codes with which the standard library reports that the system refused memory, or a thread.
bool is_refused(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again || error.code() == std::errc::not_enough_memory;
}

void translate(std::exception_ptr pending) {
  // If memory for the Python error itself is refused, pybind11 or Python raises a MemoryError.
  try {
    if (pending) std::rethrow_exception(pending);
  } catch (const Error& error) {
    set_python_error(error);
  } catch (const std::bad_alloc&) {
    set_python_error(ResourceExhausted(Reason::NO_MEMORY, "memory: an allocation was refused by the system"));
  } catch (const std::system_error& error) {
    if (!is_refused(error)) throw;
    const bool is_file = dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr;
    const std::string refused =
        is_file ? "files: the system refused an operation: " : "threads: the system refused one: ";
    set_python_error(ResourceExhausted(Reason::NO_MEMORY, refused + error.what()));
  }
}

}  // namespace

void register_errors(py::module_& module) {
  py::exception<Error> base(module, "Error");
  base.doc() = "An error of the core, with its `reason`, `message` and `details`.";
  for (const ReasonRow& row : kReasons) {
    if (py::hasattr(module, row.kind.data())) continue;
    const std::string name = "imp_service._core." + std::string(row.kind);
    module.attr(row.kind.data()) =
        py::reinterpret_steal<py::object>(PyErr_NewException(name.c_str(), base.ptr(), nullptr));
  }
}

void translate_errors() {
  py::register_local_exception_translator(&translate);
}

}  // namespace imp::bindings
