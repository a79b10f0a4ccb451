// Makes one Python exception class for each C++ error class.
#include "bindings/bind_errors.h"

#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "base/error.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// Python's class of each C++ class. They live as long as the interpreter, in the module's dictionary.
py::object class_of(const Error& error) {
  const char* name = "InternalError";
  if (dynamic_cast<const InvalidArgument*>(&error)) name = "InvalidArgument";
  if (dynamic_cast<const StateError*>(&error)) name = "StateError";
  if (dynamic_cast<const ModelError*>(&error)) name = "ModelError";
  if (dynamic_cast<const ResourceExhausted*>(&error)) name = "ResourceExhausted";
  if (dynamic_cast<const DeviceError*>(&error)) name = "DeviceError";
  return py::module_::import("imp_service._core").attr(name);
}

void set_python_error(const Error& error) {
  py::dict details;
  for (const auto& [key, value] : error.details()) details[py::str(key)] = value;
  const py::object type = class_of(error);
  py::object raised = type(py::str(std::string(reason_name(error.reason())) + ": " + error.what()));
  raised.attr("reason") = std::string(reason_name(error.reason()));
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
  base.doc() = "An error of the core; `reason`, `message` and `details` say which.";
  for (const char* name :
       {"InvalidArgument", "StateError", "ModelError", "ResourceExhausted", "DeviceError", "InternalError"}) {
    module.attr(name) = py::reinterpret_steal<py::object>(
        PyErr_NewException((std::string("imp_service._core.") + name).c_str(), base.ptr(), nullptr));
  }
}

void translate_errors() {
  py::register_local_exception_translator(&translate);
}

}  // namespace imp::bindings
