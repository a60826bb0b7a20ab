// Automata as Graphviz text.
#include "automaton/draw.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace regccrf {
namespace {

constexpr std::size_t kMostStates = 40, kMostEdges = 150;  // what a person can still follow
constexpr std::size_t kMostRows = 24;                      // of the table for larger ones

using LabelSet = std::vector<Label>;

std::string escaped(const std::string& text) {  // for a quoted DOT string
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string html(const std::string& text) {  // for an HTML-like DOT label
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

// "any", "any but X", or the labels themselves, cut after a few.
std::vector<std::string> in_words(const LabelSet& set, const Labels& labels, std::size_t most) {
  const auto name = [&](Label a) { return labels.name(a); };
  if (static_cast<int>(set.size()) == labels.size() && labels.size() > 1) return {"any label"};
  std::vector<std::string> words;
  LabelSet rest;
  for (Label a = 0; a < labels.size(); ++a) {
    if (!std::binary_search(set.begin(), set.end(), a)) rest.push_back(a);
  }
  if (set.size() > 4 && rest.size() <= 3) {
    words.push_back("any but");
    for (Label a : rest) words.push_back(name(a));
    return words;
  }
  for (std::size_t i = 0; i < set.size() && i < most; ++i) words.push_back(name(set[i]));
  if (set.size() > most) words.push_back("… " + std::to_string(set.size()) + " in all");
  return words;
}

std::string wrapped(const std::vector<std::string>& words, const std::string& line_break,
                    std::string (*escape)(const std::string&)) {
  const std::size_t width = 22;
  std::string out;
  std::size_t column = 0;
  for (const std::string& word : words) {
    if (column > 0 && column + word.size() > width) {
      out += line_break;
      column = 0;
    }
    out += (column ? " " : "") + escape(word);
    column += word.size() + 1;
  }
  return out;
}

std::map<std::pair<State, State>, LabelSet> merged_arcs(const Automaton& automaton) {
  std::map<std::pair<State, State>, LabelSet> edges;
  for (const Arc& arc : automaton.arcs) edges[{arc.from, arc.to}].push_back(arc.label);
  return edges;
}

std::string header(const std::string& title) {
  return "digraph automaton {\n  label=\"" + escaped(title) +
         "\"; labelloc=t; fontname=\"Helvetica\"; fontsize=14;\n"
         "  rankdir=LR; nodesep=0.4; ranksep=0.6;\n"
         "  node [fontname=\"Helvetica\", fontsize=12, shape=circle, width=0.45, fixedsize=true];\n"
         "  edge [fontname=\"Helvetica\", fontsize=11, arrowsize=0.7];\n";
}

// The states and arcs; a state's name is `prefix` and its number.
std::string graph(const Automaton& automaton, const Labels& labels, const std::string& prefix) {
  const auto name = [&](State q) { return prefix + std::to_string(q); };
  std::string out = "  " + prefix + "start [shape=point, width=0.08, label=\"\"];\n";
  for (State q = 0; q < automaton.states(); ++q) {
    const std::string label = prefix.empty() ? "" : "label=\"" + std::to_string(q) + "\"";
    const std::string shape = automaton.accepting[q] ? "shape=doublecircle" : "";
    const std::string both = label + (label.empty() || shape.empty() ? "" : ", ") + shape;
    out += "  " + name(q) + (both.empty() ? ";\n" : " [" + both + "];\n");
  }
  out += "  " + prefix + "start -> " + name(automaton.start) + ";\n";
  for (auto& [ends, set] : merged_arcs(automaton)) {
    out += "  " + name(ends.first) + " -> " + name(ends.second) + " [label=\" " +
           wrapped(in_words(set, labels, 12), " \\n ", escaped) + " \"];\n";
  }
  return out;
}

std::string drawing(const Automaton& automaton, const Labels& labels, const std::string& title) {
  return header(title) + graph(automaton, labels, "") + "}\n";
}

std::string row(const std::vector<std::string>& cells, bool bold) {
  std::string out = "<TR>";
  for (const std::string& cell : cells)
    out += "<TD ALIGN=\"LEFT\" BALIGN=\"LEFT\">" + (bold ? "<B>" + cell + "</B>" : cell) + "</TD>";
  return out + "</TR>\n";
}

std::string table(const Automaton& automaton, const Labels& labels, const std::string& title) {
  std::vector<LabelSet> in(automaton.accepting.size()), out(automaton.accepting.size());
  for (const Arc& arc : automaton.arcs) {
    in[arc.to].push_back(arc.label);
    out[arc.from].push_back(arc.label);
  }
  struct Kind {
    std::size_t states = 0, accepting = 0;
  };
  std::map<std::pair<LabelSet, LabelSet>, Kind> kinds;
  for (State q = 0; q < automaton.states(); ++q) {
    for (LabelSet* set : {&in[q], &out[q]}) {
      std::sort(set->begin(), set->end());
      set->erase(std::unique(set->begin(), set->end()), set->end());
    }
    Kind& kind = kinds[{in[q], out[q]}];
    ++kind.states;
    kind.accepting += automaton.accepting[q];
  }
  std::vector<std::pair<std::pair<LabelSet, LabelSet>, Kind>> rows(kinds.begin(), kinds.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& x, const auto& y) { return x.second.states > y.second.states; });

  const Size size = measure(automaton);
  std::string text = header(title) +
                     "  node [shape=plain, fixedsize=false];\n  kinds [label=<<TABLE BORDER=\"0\" CELLBORDER=\"1\" "
                     "CELLSPACING=\"0\" CELLPADDING=\"4\">\n";
  text += "<TR><TD COLSPAN=\"4\" ALIGN=\"LEFT\">" + std::to_string(size.states) + " states, " +
          std::to_string(size.arcs) + " arcs, " + std::to_string(labels.size()) +
          " labels: too many to draw. Its kinds of states:</TD></TR>\n";
  text += row({"states", "accepting", "entered by", "left by"}, true);
  for (std::size_t i = 0; i < rows.size() && i < kMostRows; ++i) {
    const auto& [sets, kind] = rows[i];
    text += row({std::to_string(kind.states), std::to_string(kind.accepting),
                 wrapped(in_words(sets.first, labels, 6), "<BR/>", html),
                 wrapped(in_words(sets.second, labels, 6), "<BR/>", html)},
                false);
  }
  if (rows.size() > kMostRows) {
    text += "<TR><TD COLSPAN=\"4\" ALIGN=\"LEFT\">… and " + std::to_string(rows.size() - kMostRows) +
            " kinds more</TD></TR>\n";
  }
  return text + "</TABLE>>];\n}\n";
}

bool too_large(const Automaton& automaton) {
  return static_cast<std::size_t>(automaton.states()) > kMostStates || merged_arcs(automaton).size() > kMostEdges;
}

}  // namespace

std::string to_dot(const Automaton& automaton, const Labels& labels, const std::string& title) {
  return too_large(automaton) ? table(automaton, labels, title) : drawing(automaton, labels, title);
}

std::string to_dot(const std::vector<Drawn>& parts, const Labels& labels, const std::string& title) {
  std::string out = header(title);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string prefix = "p" + std::to_string(i) + "_";
    const Automaton& automaton = *parts[i].automaton;
    out += "  subgraph cluster_" + std::to_string(i) + " {\n  label=\"" + escaped(parts[i].title) + "\";\n";
    if (too_large(automaton)) {
      out += "  " + prefix + " [shape=plain, fixedsize=false, label=\"" + std::to_string(automaton.states()) +
             " states, " + std::to_string(automaton.arcs.size()) + " arcs: too many to draw\"];\n";
    } else {
      out += graph(automaton, labels, prefix);
    }
    out += "  }\n";
  }
  return out + "}\n";
}

}  // namespace regccrf
