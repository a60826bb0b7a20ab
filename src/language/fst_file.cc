// OpenFst's binary files, read by OpenFst itself.
//
// Its reader believes what a file says: a wrong count makes it allocate without end, a wrong state number makes its
// algorithms crash, and it reports on stderr. So the file's skeleton (header, symbol table, one count per state) is
// walked first against the file's real size, and the arcs are checked before any algorithm sees them.
#include "language/fst_file.h"

#include <fst/symbol-table.h>

#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <utility>

#include "language/openfst.h"

namespace regccrf {
namespace {

constexpr std::int32_t kFstMagic = 2125659606;
constexpr std::int32_t kSymbolsMagic = 2125658996;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error("[load] " + path + ": " + why);
}

// Walks over the bytes of a file without believing it.
class Walker {
 public:
  Walker(const std::string& bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  std::size_t left() const { return bytes_.size() - at_; }
  void skip(std::uint64_t n) {
    if (n > left())
      refuse(path_, "the file is truncated, or damaged: " + std::to_string(n) + " bytes are missing at byte " +
                        std::to_string(at_));
    at_ += n;
  }
  template <class T>
  T take() {
    T value;
    const std::size_t from = at_;
    skip(sizeof(T));
    std::memcpy(&value, bytes_.data() + from, sizeof(T));
    return value;
  }
  std::string take_string() {
    const auto length = take<std::int32_t>();
    if (length < 0) refuse(path_, "damaged: a string has negative length");
    const std::size_t from = at_;
    skip(static_cast<std::uint64_t>(length));
    return bytes_.substr(from, static_cast<std::size_t>(length));
  }

 private:
  const std::string& bytes_;
  const std::string& path_;
  std::size_t at_ = 0;
};

void walk_symbols(Walker& walker, const std::string& path) {
  if (walker.take<std::int32_t>() != kSymbolsMagic) refuse(path, "damaged: its symbol table does not start as one");
  walker.take_string();
  walker.take<std::int64_t>();
  const auto size = walker.take<std::int64_t>();
  if (size < 0 || static_cast<std::uint64_t>(size) > walker.left() / 12)
    refuse(path, "damaged: its symbol table is larger than the file");
  for (std::int64_t i = 0; i < size; ++i) {
    walker.take_string();
    walker.take<std::int64_t>();
  }
}

void walk(const std::string& bytes, const std::string& path, const Budget& budget) {
  Walker walker(bytes, path);
  walker.take<std::int32_t>();
  const std::string type = walker.take_string(), arc_type = walker.take_string();
  if (type != "vector")
    refuse(path, "an OpenFst file of type '" + type + "'; convert it with fstconvert --fst_type=vector");
  if (arc_type != "standard")
    refuse(path, "an OpenFst file with arcs of type '" + arc_type + "'; convert it with fstmap --map_type=to_standard");
  walker.take<std::int32_t>();  // version
  const auto flags = walker.take<std::int32_t>();
  walker.skip(8);  // properties
  const auto start = walker.take<std::int64_t>();
  const auto states = walker.take<std::int64_t>();
  if (states < -1) refuse(path, "damaged: it claims " + std::to_string(states) + " states");
  walker.skip(8);  // arcs
  if (flags & fst::FstHeader::HAS_ISYMBOLS) walk_symbols(walker, path);
  if (flags & fst::FstHeader::HAS_OSYMBOLS) walk_symbols(walker, path);
  std::int64_t seen = 0, all_arcs = 0;
  while (states < 0 ? walker.left() > 0 : seen < states) {
    walker.skip(4);  // final weight
    const auto arcs = walker.take<std::int64_t>();
    if (arcs < 0 || static_cast<std::uint64_t>(arcs) > walker.left() / 16)
      refuse(path, "the file is truncated, or damaged: state " + std::to_string(seen) + " claims " +
                       std::to_string(arcs) + " arcs");
    walker.skip(static_cast<std::uint64_t>(arcs) * 16);
    all_arcs += arcs;
    budget.check_size("load", ++seen, all_arcs);
  }
  if (start < -1 || start >= seen)
    refuse(path, "damaged: the start state is " + std::to_string(start) + ", and there are " + std::to_string(seen) +
                     " states");
}

// OpenFst reports on std::cerr what we report as an Error; while this lives, std::cerr swallows it.
class QuietCerr {
 public:
  QuietCerr() : state_(std::cerr.rdstate()) { std::cerr.setstate(std::ios::failbit); }
  ~QuietCerr() { std::cerr.clear(state_); }
  QuietCerr(const QuietCerr&) = delete;
  QuietCerr& operator=(const QuietCerr&) = delete;

 private:
  std::ios::iostate state_;
};

void check_is_unweighted_acceptor(const Fst& fst, const std::string& path) {
  const auto states = fst.NumStates();
  for (State q = 0; q < states; ++q) {
    const Weight final = fst.Final(q);
    if (final != Weight::Zero() && final != Weight::One()) {
      refuse(path, "the automaton has weights (final weight of state " + std::to_string(q) +
                       "); a constraint is unweighted. Remove them with fstmap --map_type=rmweight");
    }
    for (fst::ArcIterator<Fst> arcs(fst, q); !arcs.Done(); arcs.Next()) {
      const fst::StdArc& arc = arcs.Value();
      const std::string where = " (an arc of state " + std::to_string(q) + ")";
      if (arc.nextstate < 0 || arc.nextstate >= states)
        refuse(path, "damaged: an arc of state " + std::to_string(q) + " goes to state " +
                         std::to_string(arc.nextstate) + " of " + std::to_string(states));
      if (arc.ilabel < 0 || arc.olabel < 0) refuse(path, "damaged: negative label" + where);
      if (arc.ilabel != arc.olabel)
        refuse(path, "a transducer: input and output labels differ" + where + "; take one side with fstproject");
      if (arc.weight != Weight::One())
        refuse(path, "the automaton has weights" + where +
                         "; a constraint is unweighted. Remove them with fstmap --map_type=rmweight");
    }
  }
}

Symbols symbols_of(const fst::SymbolTable& table) {
  Symbols symbols;
  for (const auto& item : table) symbols[item.Label()] = item.Symbol();
  return symbols;
}

}  // namespace

bool looks_like_fst(const std::string& bytes) {
  std::int32_t magic = 0;
  if (bytes.size() >= 4) std::memcpy(&magic, bytes.data(), 4);
  return magic == kFstMagic;
}

NamedAutomaton decode_fst(const std::string& bytes, const Symbols& given, const std::string& path,
                          const Budget& budget) {
  make_errors_survivable();
  if (!looks_like_fst(bytes)) refuse(path, "not an OpenFst file");
  walk(bytes, path, budget);
  std::unique_ptr<Fst> fst;
  {
    const QuietCerr quiet;
    std::istringstream in(bytes);
    fst.reset(Fst::Read(in, fst::FstReadOptions(path)));
  }
  if (!fst) refuse(path, "damaged: OpenFst cannot read it");
  if (fst->Start() >= fst->NumStates()) refuse(path, "damaged: its start state does not exist");
  check_is_unweighted_acceptor(*fst, path);
  fst->SetProperties(0, fst::kCopyProperties & ~fst::kError);  // what the file claims of itself is not believed

  const Symbols symbols = fst->InputSymbols() ? symbols_of(*fst->InputSymbols()) : given;
  if (symbols.empty()) refuse(path, "it carries no symbol table; give one with --symbols");
  NamedAutomaton result;
  std::map<std::int64_t, Label> ids;
  for (const auto& [key, name] : symbols) {
    if (key <= 0) continue;
    ids[key] = static_cast<Label>(result.names.size());
    result.names.push_back(name);
  }
  result.automaton = from_fst(without_epsilon(*fst, budget));
  for (Arc& arc : result.automaton.arcs) {
    const auto id = ids.find(arc.label + 1);  // from_fst has subtracted 1
    if (id == ids.end()) refuse(path, "label number " + std::to_string(arc.label + 1) + " is not in its symbol table");
    arc.label = id->second;
  }
  return result;
}

namespace {

fst::SymbolTable symbol_table(const char* name, const std::vector<std::string>& names) {
  fst::SymbolTable table(name);
  table.AddSymbol("<eps>", 0);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "<eps>")
      throw Error("[write] the label '<eps>' cannot be written: it is OpenFst's name for epsilon; rename the label");
    table.AddSymbol(names[i], static_cast<std::int64_t>(i) + 1);
  }
  return table;
}

template <class AnyArc>
std::string written(fst::VectorFst<AnyArc>& fst, const fst::SymbolTable& input, const fst::SymbolTable& output) {
  fst.SetInputSymbols(&input);
  fst.SetOutputSymbols(&output);
  std::ostringstream out;
  if (!fst.Write(out, fst::FstWriteOptions())) throw Error("[write] OpenFst cannot write the automaton");
  return out.str();
}

template <class AnyArc>
std::string encode_weighted(const WeightedFst& in) {
  using AnyWeight = typename AnyArc::Weight;
  fst::VectorFst<AnyArc> fst;
  fst.AddStates(static_cast<std::size_t>(in.states));
  fst.SetStart(in.start);
  for (const auto& [state, weight] : in.final)
    fst.SetFinal(state, AnyWeight(static_cast<typename AnyWeight::ValueType>(weight)));
  for (const WeightedFst::Arc& arc : in.arcs) {
    fst.AddArc(arc.from, AnyArc(arc.input, arc.output,
                                AnyWeight(static_cast<typename AnyWeight::ValueType>(arc.weight)), arc.to));
  }
  return written(fst, symbol_table("inputs", in.input_names), symbol_table("bigrams", in.output_names));
}

}  // namespace

std::string encode_weighted_fst(const WeightedFst& fst, int semiring) {
  if (semiring == 0) return encode_weighted<fst::StdArc>(fst);
  return semiring == 1 ? encode_weighted<fst::LogArc>(fst) : encode_weighted<fst::Log64Arc>(fst);
}

std::string encode_fst(const Automaton& automaton, const std::vector<std::string>& names) {
  Fst fst = to_fst(automaton);
  const fst::SymbolTable table = symbol_table("labels", names);
  return written(fst, table, table);
}

}  // namespace regccrf
