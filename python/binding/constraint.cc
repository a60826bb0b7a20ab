// Constraint: compiled, immutable; travels as bytes.
#include "regccrf/constraint.h"

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <filesystem>

#include "bind.h"
#include "constraint/labels_in_use.h"
#include "regccrf/language.h"

namespace py = pybind11;

namespace regccrf::python {
namespace {

using Unlocked = py::call_guard<py::gil_scoped_release>;

Constraint from_arcs(const Labels& labels, std::int32_t start, const std::vector<std::int32_t>& accepting,
                     const std::vector<std::tuple<std::int32_t, std::int32_t, std::int32_t>>& arcs) {
  Automaton automaton;
  automaton.start = start;
  std::int32_t states = start + 1;
  for (std::int32_t q : accepting) states = std::max(states, q + 1);
  for (const auto& [from, label, to] : arcs) {
    states = std::max({states, from + 1, to + 1});
    automaton.arcs.push_back({from, label, to});
  }
  automaton.accepting.resize(static_cast<std::size_t>(std::max(states, 0)));
  for (std::int32_t q : accepting) {
    if (q < 0) throw Error("[Constraint] accepting state " + std::to_string(q) + " is negative");
    automaton.accepting[q] = 1;
  }
  normalize(automaton, labels.size());
  return Constraint::from_automaton(std::move(automaton), labels);
}

std::vector<std::tuple<std::int32_t, std::int32_t, std::int32_t>> arcs_of(const Constraint& constraint) {
  std::vector<std::tuple<std::int32_t, std::int32_t, std::int32_t>> arcs;
  for (const Arc& arc : constraint.automaton().arcs) arcs.emplace_back(arc.from, arc.label, arc.to);
  return arcs;
}

std::vector<std::int32_t> accepting_of(const Constraint& constraint) {
  std::vector<std::int32_t> states;
  for (std::int32_t q = 0; q < constraint.automaton().states(); ++q) {
    if (constraint.automaton().accepting[q]) states.push_back(q);
  }
  return states;
}

std::string repr(const Constraint& constraint) {
  const Size& size = constraint.size();
  return "<Constraint: " + std::to_string(constraint.labels().size()) + " labels, " + std::to_string(size.states) +
         " states, " + std::to_string(size.arcs) + " arcs, " + std::to_string(size.products) + " products" +
         (constraint.rules() > 0 ? ", and " + std::to_string(constraint.rules()) + " rules>" : ">");
}

Rules rules_named(const std::string& name) {
  if (name == "auto") return Rules::automatic;
  if (name == "all") return Rules::all;
  if (name == "none") return Rules::none;
  throw Error("[compile] rules is \"" + name + "\", expected \"auto\", \"all\" or \"none\"");
}

py::bytes to_bytes(const Constraint& constraint) { return py::bytes(constraint.to_bytes()); }

Constraint from_bytes(const py::bytes& bytes) { return Constraint::from_bytes(static_cast<std::string_view>(bytes)); }

}  // namespace

void bind_constraint(py::module_& module) {
  py::class_<Constraint>(module, "Constraint", R"doc(A language compiled for inference. Immutable; can be pickled.

    >>> regccrf.compile("(O | B I*)*")
    <Constraint: 3 labels, 2 states, 5 arcs, 8 products>
    )doc")
      .def_static("unconstrained", &Constraint::unconstrained, py::arg("labels"), R"doc(All sequences: an ordinary CRF.

    >>> regccrf.Constraint.unconstrained(["A", "B"]).states
    1
    )doc")
      .def_static("from_arcs", &from_arcs, py::arg("labels"), py::arg("start"), py::arg("accepting"), py::arg("arcs"),
                  Unlocked(),
                  R"doc(An unambiguous automaton as it is; arcs are (state, label id, state).

    >>> regccrf.Constraint.from_arcs(["A", "B"], 0, [1], [(0, 0, 1), (1, 1, 1)]).arcs
    2
    )doc")
      .def_property_readonly("labels", &Constraint::labels, "The labels, in order.")
      .def_property_readonly(
          "states", [](const Constraint& x) { return x.size().states; }, "The number of states, Q.")
      .def_property_readonly(
          "arcs", [](const Constraint& x) { return x.size().arcs; }, "The number of arcs, A.")
      .def_property_readonly(
          "nodes", [](const Constraint& x) { return x.size().nodes; },
          "The number of pairs (state, label) with an arc; the memory of a position.")
      .def_property_readonly(
          "products", [](const Constraint& x) { return x.size().products; }, "Multiplications a position.")
      .def_property_readonly("rules", &Constraint::rules,
                             R"doc(The number of rules that are kept apart; the automaton is then only the base.

    >>> regccrf.compile("[A B C D]* & at_most(1, A) & at_most(1, B)", rules="all").rules
    2
    )doc")
      .def_property_readonly("memories", &Constraint::memories, "How many automata the kept rules share.")
      .def_property_readonly("base", &Constraint::base,
                             R"doc(This constraint without the kept rules; itself if no rules are kept.

    >>> regccrf.compile("[A B C D]* & at_most(1, A) & at_most(1, B)", rules="all").base.rules
    0
    )doc")
      .def_property_readonly(
          "rule_texts",
          [](const Constraint& x) {
            std::vector<std::vector<std::string>> texts;
            for (const Rule& rule : x.memory_list()) texts.push_back(rule.texts);
            return texts;
          },
          "How the rules are written: a list for each memory.")
      .def_property_readonly("deterministic", &Constraint::deterministic, "At most one arc for each (state, label).")
      .def_property_readonly("method", &Constraint::method, "How it was made unambiguous.")
      .def_property_readonly("text", &Constraint::text, "The pattern that it was compiled from, if known.")
      .def_property_readonly(
          "start", [](const Constraint& x) { return x.automaton().start; }, "The start state.")
      .def_property_readonly("accepting", &accepting_of, "The accepting states.")
      .def("arc_list", &arcs_of, R"doc(Its arcs as (state, label id, state).

    >>> regccrf.compile("A").arc_list()
    [(0, 0, 1)]
    )doc")
      .def(
          "accepts", [](const Constraint& x, const std::vector<Label>& ids) { return x.accepts(ids); }, py::arg("ids"),
          R"doc(Membership of a sequence of label ids.

    >>> bool(regccrf.compile("A B").accepts([0, 1]))
    True
    )doc")
      .def("language", &Language::from_constraint,
           R"doc(The language that it was compiled from.

    >>> ["A"] in regccrf.compile("A").language()
    True
    )doc")
      .def(
          "save", [](const Constraint& x, const std::filesystem::path& path) { x.save(path.string()); },
          py::arg("path"), Unlocked(), "Save it to a file. An incomplete file is never left.")
      .def_static(
          "load", [](const std::filesystem::path& path) { return Constraint::load(path.string()); }, py::arg("path"),
          Unlocked(), R"doc(A saved constraint.

    >>> regccrf.Constraint.load("no such file")
    Traceback (most recent call last):
    ...
    regccrf.Error: ...
    )doc")
      .def("to_bytes", &to_bytes, R"doc(What `save` writes.

    >>> regccrf.Constraint.from_bytes(regccrf.compile("A").to_bytes()).states
    2
    )doc")
      .def_static("from_bytes", &from_bytes, py::arg("bytes"), "A constraint from what `to_bytes` gave.")
      .def("__repr__", &repr)
      .def(
          "__eq__", [](const Constraint& x, const Constraint& y) { return x.to_bytes() == y.to_bytes(); },
          py::is_operator())
      .def("__hash__", [](const Constraint& x) { return py::hash(to_bytes(x)); })
      .def("__copy__", [](py::object self) { return self; })
      .def("__deepcopy__", [](py::object self, const py::dict&) { return self; })
      .def(py::pickle(&to_bytes, &from_bytes));

  module.def("labels_in_use", &labels_in_use, py::arg("constraint"));
  module.def(
      "compile_language",
      [](const Language& language, const Limits& limits, const std::string& rules) {
        return compile(language, limits, rules_named(rules));
      },
      py::arg("language"), py::arg("limits"), py::arg("rules") = "auto", Unlocked());
}

}  // namespace regccrf::python
