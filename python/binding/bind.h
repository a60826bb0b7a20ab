// One function for each public header that is bound. Docstrings live with their functions; types in regccrf/_core.pyi.
#pragma once

#include <pybind11/pybind11.h>

namespace regccrf::python {

void bind_labels(pybind11::module_& module);
void bind_language(pybind11::module_& module);
void bind_constraint(pybind11::module_& module);
void bind_inference(pybind11::module_& module);
void bind_cuda(pybind11::module_& module);
void bind_tagger(pybind11::module_& module);

}  // namespace regccrf::python
