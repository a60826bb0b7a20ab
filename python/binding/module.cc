// regccrf._core: the compiled part of the Python package. Thin: values and functions of the public headers, arrays as
// raw pointers, no Python array library. Errors keep their message.
#include <pybind11/stl.h>

#include <exception>
#include <string>
#include <utility>

#include "bind.h"
#include "regccrf/error.h"

namespace py = pybind11;

namespace {

const char* name_of(regccrf::ErrorKind kind) {
  switch (kind) {
    case regccrf::ErrorKind::invalid:
      return "invalid";
    case regccrf::ErrorKind::limit:
      return "limit";
    case regccrf::ErrorKind::impossible:
      return "impossible";
    case regccrf::ErrorKind::outside:
      return "outside";
  }
  return "";
}

// A message of the library that advises the program's options, with Python's arguments in their place.
std::string for_python(std::string message) {
  static const std::pair<std::string, std::string> words[] = {
      {"--max-states (Limits::states)", "limits=regccrf.Limits(states=…), which regccrf.compile takes"},
      {"--max-arcs (Limits::arcs)", "limits=regccrf.Limits(arcs=…), which regccrf.compile takes"},
      {"--max-seconds (Limits::seconds)", "limits=regccrf.Limits(seconds=…), which regccrf.compile takes"},
      {"--max-memory (Limits::memory)", "limits=regccrf.Limits(memory=…), which regccrf.compile takes"},
      {"--max-products (Limits::products)", "limits=regccrf.Limits(products=…)"},
      {"(Rules::none, --rules none)", "(regccrf.compile(…, rules=\"none\"))"},
      {"raise Options::rules, or state", "state"},
      {"(--constrain decode, in Python constrain=\"decode\")", "(constrain=\"decode\")"},
      {"give one with --symbols", "give one: Language.load(…, symbols=…)"},
      {"--format crfsuite", "format=\"crfsuite\""},
      {"--format says", "format= says"},
      {"--embeddings says", "embeddings= says"},
      {"a position without a label must be masked", "mask positions without a label, as with mask=tags >= 0"},
  };
  for (const auto& [option, argument] : words) {
    for (auto at = message.find(option); at != std::string::npos; at = message.find(option, at + argument.size())) {
      message.replace(at, option.size(), argument);
    }
  }
  return message;
}

// Raises an exception of `type` with the error's message and fields.
void raise(const py::handle& type, const regccrf::Error& error) {
  const py::object exception = type(for_python(error.what()));
  exception.attr("kind") = name_of(error.kind());
  exception.attr("sequence") = error.sequence();
  exception.attr("position") = error.position();
  PyErr_SetObject(type.ptr(), exception.ptr());
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  py::options options;
  options.disable_function_signatures();
  module.doc() = "The compiled part of regccrf.";
  module.attr("__version__") = REGCCRF_VERSION;

  static py::exception<regccrf::Error> error(module, "Error", PyExc_ValueError);
  static py::exception<regccrf::LimitError> limit_error(module, "LimitError", error.ptr());
  error.attr("__module__") = "regccrf";
  limit_error.attr("__module__") = "regccrf";
  error.doc() =
      "A call that cannot be done. The message says why, and what to do. `kind` is \"invalid\", \"limit\", "
      "\"impossible\" "
      "(the language has no such sequence) or \"outside\" (the given labels are not in the language). `sequence` and "
      "`position` say where in the batch, or are None.";
  error.attr("kind") = name_of(regccrf::ErrorKind::invalid);  // of those that are raised in Python
  error.attr("sequence") = py::none();
  error.attr("position") = py::none();
  limit_error.doc() = "A limit was exceeded. It can be raised by `Limits`.";
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const regccrf::LimitError& e) {
      raise(limit_error, e);
    } catch (const regccrf::Error& e) {
      raise(error, e);
    }
  });

  regccrf::python::bind_labels(module);
  regccrf::python::bind_language(module);
  regccrf::python::bind_constraint(module);
  regccrf::python::bind_inference(module);
  regccrf::python::bind_cuda(module);
  regccrf::python::bind_tagger(module);
}
