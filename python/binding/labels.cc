// Labels: a Python sequence of names.
#include "regccrf/labels.h"

#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include "bind.h"

namespace py = pybind11;

namespace regccrf::python {

void bind_labels(py::module_& module) {
  py::class_<Labels>(module, "Labels", R"doc(Label names in a fixed order; a label's place is its id.

    >>> regccrf.Labels(["O", "B", "I"]).ids(["B", "I"])
    [1, 2]
    )doc")
      .def(py::init<std::vector<std::string>>(), py::arg("names"))
      .def("__len__", &Labels::size)
      .def("__getitem__",
           [](const Labels& labels, int i) {
             if (i < 0) i += labels.size();
             if (i < 0 || i >= labels.size())
               throw py::index_error("label ids are 0 … " + std::to_string(labels.size() - 1));
             return labels.name(i);
           })
      .def("__contains__", [](const Labels& labels, const std::string& name) { return labels.find(name).has_value(); })
      .def("__iter__", [](const Labels& labels) { return py::iter(py::cast(labels.names())); })
      .def("__hash__", [](const Labels& labels) { return py::hash(py::tuple(py::cast(labels.names()))); })
      .def(
          "__repr__",
          [](const Labels& labels) { return "Labels(" + py::repr(py::cast(labels.names())).cast<std::string>() + ")"; })
      .def(py::self == py::self)
      .def("id", &Labels::id, py::arg("name"), R"doc(The id of a name. An Error names the nearest known label.

    >>> regccrf.Labels(["O", "B", "I"]).id("I")
    2
    )doc")
      .def(
          "ids", [](const Labels& labels, const std::vector<std::string>& names) { return labels.ids(names); },
          py::arg("names"),
          R"doc(The ids of a sequence of names.

    >>> regccrf.Labels(["O", "B"]).ids(["B", "O"])
    [1, 0]
    )doc")
      .def(
          "names",
          [](const Labels& labels, const std::vector<Label>& ids) { return labels.names(std::span<const Label>(ids)); },
          py::arg("ids"), R"doc(The names of a sequence of ids.

    >>> regccrf.Labels(["O", "B"]).names([1, 0])
    ['B', 'O']
    )doc")
      .def(py::pickle([](const Labels& labels) { return py::make_tuple(labels.names()); },
                      [](const py::tuple& state) { return Labels(state[0].cast<std::vector<std::string>>()); }));
}

}  // namespace regccrf::python
