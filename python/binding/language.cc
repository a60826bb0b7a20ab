// Language: patterns and their algebra, with Python's operators.
#include "regccrf/language.h"

#include <pybind11/operators.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <cstring>
#include <filesystem>

#include "bind.h"
#include "regccrf/error.h"

namespace py = pybind11;

namespace regccrf::python {
namespace {

using Unlocked = py::call_guard<py::gil_scoped_release>;
using Names = std::vector<std::string>;

std::vector<Names> names_of(const Labels& labels, const std::vector<std::vector<Label>>& sequences) {
  std::vector<Names> all;
  all.reserve(sequences.size());
  for (const auto& sequence : sequences) all.push_back(labels.names(std::span<const Label>(sequence)));
  return all;
}

// All sequences, shorter before longer: asks for twice as many each time it runs out.
class Members {
 public:
  explicit Members(Language language) : language_(std::move(language)) {}
  Names next() {
    if (at_ == known_.size() && !complete_) more();
    if (at_ == known_.size()) throw py::stop_iteration();
    return language_.labels().names(std::span<const Label>(known_[at_++]));
  }

 private:
  void more() {
    const std::size_t wanted = 2 * known_.size() + 8;
    py::gil_scoped_release unlocked;
    known_ = language_.enumerate(wanted);
    complete_ = known_.size() < wanted;
  }
  Language language_;
  std::vector<std::vector<Label>> known_;
  std::size_t at_ = 0;
  bool complete_ = false;
};

std::string repr(const Language& language) {
  const std::string over = " over " + std::to_string(language.labels().size()) + " labels>";
  if (language.text().empty()) return "<Language" + over;
  std::string text = language.text().substr(0, 60);
  return "<Language " + py::repr(py::cast(text + (language.text().size() > 60 ? "…" : ""))).cast<std::string>() + over;
}

// A pattern of one word that ends as files do would be a few labels with any between them: nobody means that.
void refuse_file_name(const std::string& text) {
  if (text.empty() || text.find_first_of(" \t\n") != std::string::npos) return;
  const std::string ending = std::filesystem::path(text).extension().string();
  const bool is_known = ending == ".lang" || ending == ".fst" || ending == ".att";
  std::error_code ignored;
  const bool is_there = !ending.empty() && std::filesystem::is_regular_file(text, ignored);
  if (!is_known && !is_there) return;
  const std::string name = py::repr(py::cast(text)).cast<std::string>();
  throw Error("[pattern] a str is a pattern, and " + name + " is the name of a file" +
              (is_there ? "" : ", which is not there") + ": to read it, give pathlib.Path(" + name +
              ") or Language.load(" + name + ")");
}

Language parse(const std::string& text, const std::optional<Labels>& labels, const std::string& origin) {
  if (origin == "pattern") refuse_file_name(text);
  py::gil_scoped_release unlocked;
  return Language::parse(text, labels, origin);
}

// What a language is pickled as: its automaton.
py::tuple state_of(const Language& language) {
  const Automaton* automaton = nullptr;
  {
    py::gil_scoped_release unlocked;
    automaton = &language.automaton();
  }
  static_assert(sizeof(Arc) == 3 * sizeof(std::int32_t));
  const auto* accepting = reinterpret_cast<const char*>(automaton->accepting.data());
  const auto* arcs = reinterpret_cast<const char*>(automaton->arcs.data());
  return py::make_tuple(language.labels().names(), automaton->start, py::bytes(accepting, automaton->accepting.size()),
                        py::bytes(arcs, automaton->arcs.size() * sizeof(Arc)), language.text());
}

Language from_state(const py::tuple& state) {
  const auto accepting = state[2].cast<std::string>(), arcs = state[3].cast<std::string>();
  Automaton automaton;
  automaton.start = state[1].cast<State>();
  automaton.accepting.assign(accepting.begin(), accepting.end());
  automaton.arcs.resize(arcs.size() / sizeof(Arc));
  std::memcpy(automaton.arcs.data(), arcs.data(), automaton.arcs.size() * sizeof(Arc));
  return Language::from_automaton(std::move(automaton), Labels(state[0].cast<Names>()), state[4].cast<std::string>());
}

void bind_membership(py::module_& module) {
  py::class_<Membership>(module, "Membership",
                         R"doc(Whether a sequence is in a language, and if not, where it leaves it. True if it is.

    >>> regccrf.Language("A B*").accepts(["A", "A"]).position
    1
    )doc")
      .def_readonly("accepted", &Membership::accepted, "Whether the sequence is in the language.")
      .def_readonly("position", &Membership::position,
                    "The first position at which no continuation stays in the language.")
      .def_readonly("possible", &Membership::possible, "The label ids that were possible there.")
      .def_readonly("rule", &Membership::rule, "The rule that is broken there, if the constraint keeps rules.")
      .def("__bool__", [](const Membership& membership) { return membership.accepted; })
      .def("__repr__", [](const Membership& membership) {
        if (membership.accepted) return std::string("Membership(accepted=True)");
        return "Membership(accepted=False, position=" + std::to_string(membership.position) +
               ", possible=" + py::repr(py::cast(membership.possible)).cast<std::string>() + ")";
      });
}

void bind_limits(py::module_& module) {
  py::class_<Limits>(module, "Limits", R"doc(Limits of compiling. A LimitError is raised if one is exceeded.

    >>> regccrf.Limits(states=1000).states
    1000
    )doc")
      .def(py::init([](std::int64_t states, std::int64_t arcs, double seconds, std::int64_t products,
                       std::int64_t memory) {
             return Limits{.states = states, .arcs = arcs, .seconds = seconds, .memory = memory, .products = products};
           }),
           py::arg("states") = Limits{}.states, py::arg("arcs") = Limits{}.arcs, py::arg("seconds") = Limits{}.seconds,
           py::arg("products") = Limits{}.products, py::arg("memory") = Limits{}.memory)
      .def_readonly("states", &Limits::states, "The states of any automaton in compiling.")
      .def_readonly("arcs", &Limits::arcs, "Its arcs.")
      .def_readonly("seconds", &Limits::seconds, "The time of a call, with reading the text.")
      .def_readonly("products", &Limits::products, "Multiplications a position; above it, rules are kept apart.")
      .def_readonly("memory", &Limits::memory, "The memory of a call, in megabytes.");
}

}  // namespace

void bind_language(py::module_& module) {
  bind_limits(module);
  bind_membership(module);
  py::class_<Members>(module, "Members")
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &Members::next);

  const auto limits = [] { return py::arg_v("limits", Limits{}, "Limits()"); };
  py::class_<Language>(module, "Language", R"doc(A set of label sequences: `Language(pattern, labels=None)`.

    Operators: `|` union, `&` intersection, `-` difference, `~` complement, `+` concatenation, `in` membership.
    Both sides of `&` need the same labels, in any order. Iteration gives the sequences, shorter before longer. `==` is
    identity; see `equals`. Can be pickled.

    >>> spans = regccrf.Language("(O | B I*)*") & regccrf.Language("at_most(1, B)", labels=["O", "B", "I"])
    >>> ["B", "O", "B"] in spans
    False
    )doc")
      .def(py::init(&parse), py::arg("text"), py::arg("labels") = py::none(), py::arg("origin") = "pattern")
      .def_static(
          "load",
          [](const std::filesystem::path& path, const std::optional<Labels>& labels, const std::string& symbols,
             const Limits& most) { return Language::load(path.string(), labels, symbols, most); },
          py::arg("path"), py::arg("labels") = py::none(), py::arg("symbols") = "", limits(), Unlocked(),
          R"doc(A .lang file, an OpenFst binary, AT&T text (*.att) or a saved constraint. The format is detected.

    >>> regccrf.Language.load("no such file")
    Traceback (most recent call last):
    ...
    regccrf.Error: ...
    )doc")
      .def_static("everything", &Language::everything, py::arg("labels"), R"doc(All sequences over some labels.

    >>> [] in regccrf.Language.everything(["A"])
    True
    )doc")
      .def_static("nothing", &Language::nothing, py::arg("labels"), R"doc(No sequence at all.

    >>> [] in regccrf.Language.nothing(["A"])
    False
    )doc")
      .def_property_readonly("labels", &Language::labels, "The alphabet, in order.")
      .def_property_readonly("text", &Language::text, "What it was parsed from; empty otherwise.")
      .def("with_labels", &Language::with_labels, py::arg("labels"),
           R"doc(The same sequences over more labels, matched by name.

    >>> len(regccrf.Language("A").with_labels(["A", "B"]).labels)
    2
    )doc")
      .def(
          "__or__", [](const Language& x, const Language& y) { return x | y; }, py::is_operator())
      .def(
          "__and__", [](const Language& x, const Language& y) { return x & y; }, py::is_operator())
      .def(
          "__sub__", [](const Language& x, const Language& y) { return x - y; }, py::is_operator())
      .def(
          "__add__", [](const Language& x, const Language& y) { return x + y; }, py::is_operator())
      .def("__invert__", [](const Language& x) { return !x; })
      .def("__contains__", [](const Language& x, const Names& names) { return x.accepts(names).accepted; })
      .def("__iter__", [](const Language& x) { return Members(x); })
      .def("__repr__", &repr)
      .def("__copy__", [](py::object self) { return self; })
      .def("__deepcopy__", [](py::object self, const py::dict&) { return self; })
      .def(py::pickle(&state_of, &from_state))
      .def("star", &Language::star, R"doc(Any number of its sequences, one after another.

    >>> ["A", "A"] in regccrf.Language("A").star()
    True
    )doc")
      .def("repeat", &Language::repeat, py::arg("least"), py::arg("most") = py::none(),
           R"doc(`least` to `most` sequences of the language, one after another.

    >>> ["A"] in regccrf.Language("A").repeat(2, 3)
    False
    )doc")
      .def("reverse", &Language::reverse, R"doc(Its sequences, back to front.

    >>> ["B", "A"] in regccrf.Language("A B").reverse()
    True
    )doc")
      .def(
          "accepts", [](const Language& x, const Names& names, const Limits& most) { return x.accepts(names, most); },
          py::arg("sequence"), limits(), Unlocked(),
          R"doc(Whether a sequence of label names is in the language, and if not, where it leaves it.

    >>> regccrf.Language("A B").accepts(["A"])
    Membership(accepted=False, position=1, possible=[1])
    )doc")
      .def("empty", &Language::empty, limits(), Unlocked(), R"doc(Whether it has no sequence.

    >>> (regccrf.Language("A") & regccrf.Language("A A")).empty()
    True
    )doc")
      .def("equals", &Language::equals, py::arg("other"), limits(), Unlocked(),
           R"doc(Whether both have the same sequences.

    >>> regccrf.Language("A A*").equals(regccrf.Language("A+"))
    True
    )doc")
      .def("includes", &Language::includes, py::arg("other"), limits(), Unlocked(),
           R"doc(Whether every sequence of `other` is in it.

    >>> regccrf.Language("A*").includes(regccrf.Language("A A"))
    True
    )doc")
      .def(
          "shortest",
          [](const Language& x, const Limits& most) -> std::optional<Names> {
            const auto sequence = x.shortest(most);
            if (!sequence) return std::nullopt;
            return x.labels().names(std::span<const Label>(*sequence));
          },
          limits(), Unlocked(), R"doc(A shortest sequence, as names; None if there is none.

    >>> regccrf.Language("A B | A").shortest()
    ['A']
    )doc")
      .def(
          "count",
          [](const Language& x, std::size_t length, const Limits& most) {
            std::string digits;
            {
              py::gil_scoped_release unlocked;
              digits = x.count(length, most);
            }
            return py::int_(py::str(digits));
          },
          py::arg("length"), limits(), R"doc(The exact number of its sequences of this length.

    >>> regccrf.Language("(A | B)*").count(100) == 2 ** 100
    True
    )doc")
      .def(
          "random",
          [](const Language& x, std::size_t length, std::size_t many, std::uint64_t seed, const Limits& most) {
            return names_of(x.labels(), x.random(length, many, seed, most));
          },
          py::arg("length"), py::arg("many") = 1, py::arg("seed") = 0, limits(), Unlocked(),
          R"doc(Sequences of this length, each equally likely.

    >>> regccrf.Language("A B*").random(3)
    [['A', 'B', 'B']]
    )doc")
      .def(
          "of_length",
          [](const Language& x, std::size_t length, std::size_t most_sequences, const Limits& most) {
            return names_of(x.labels(), x.enumerate_length(length, most_sequences, most));
          },
          py::arg("length"), py::arg("most") = 1000, limits(), Unlocked(),
          R"doc(Its first `most` sequences of one length.

    >>> regccrf.Language("A | B C | C B").of_length(2)
    [['B', 'C'], ['C', 'B']]
    )doc")
      .def(
          "enumerate",
          [](const Language& x, std::size_t most_sequences, const Limits& most) {
            return names_of(x.labels(), x.enumerate(most_sequences, most));
          },
          py::arg("most"), limits(), Unlocked(), R"doc(Its first `most` sequences, shorter before longer.

    >>> regccrf.Language("A*").enumerate(3)
    [[], ['A'], ['A', 'A']]
    )doc");

  py::implicitly_convertible<py::list, Labels>();
  py::implicitly_convertible<py::tuple, Labels>();
}

}  // namespace regccrf::python
