// regccrf._core: the compiled part of the Python package. Thin: values and functions of the public headers, arrays as
// raw pointers, no Python array library. Errors keep their message.
#include <exception>

#include "bind.h"
#include "regccrf/error.h"

namespace py = pybind11;

PYBIND11_MODULE(_core, module) {
  py::options options;
  options.disable_function_signatures();
  module.doc() = "The compiled part of regccrf.";
  module.attr("__version__") = REGCCRF_VERSION;

  static py::exception<regccrf::Error> error(module, "Error", PyExc_ValueError);
  static py::exception<regccrf::LimitError> limit_error(module, "LimitError", error.ptr());
  error.attr("__module__") = "regccrf";
  limit_error.attr("__module__") = "regccrf";
  error.doc() = "What was asked for cannot be done; the message says why, and what to do.";
  limit_error.doc() = "A construction would have outgrown its limits; raising them may help.";
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const regccrf::LimitError& e) {
      limit_error(e.what());
    } catch (const regccrf::Error& e) {
      error(e.what());
    }
  });

  regccrf::python::bind_labels(module);
  regccrf::python::bind_language(module);
  regccrf::python::bind_constraint(module);
  regccrf::python::bind_inference(module);
  regccrf::python::bind_cuda(module);
  regccrf::python::bind_tagger(module);
}
