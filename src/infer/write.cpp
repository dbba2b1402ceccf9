#include "infer/write.h"

#include <fmt/format.h>

#include <map>
#include <regex>
#include <set>

namespace attnc::inferred {
namespace {

/// How tightly a text binds.
enum class Binds { Or, And, Comparison, Element };

Binds bindsOf(const std::string& text) {
  if (text.find(") & (") != std::string::npos && text.front() == '(') return Binds::And;
  if (text.find(") | (") != std::string::npos && text.front() == '(') return Binds::Or;
  for (const char* comparison : {" < ", " <= ", " > ", " >= ", " == ", " != "})
    if (text.find(comparison) != std::string::npos) return Binds::Comparison;
  return Binds::Element;
}

/// Returns the expression with those within atoms written out.
Expr flattened(const Expr& expr, bool flips = false) {
  if (expr.kind == Expr::Kind::Leaf) {
    const bool isNegated = flips != expr.isNegated;
    return expr.atom->inner ? flattened(*expr.atom->inner, isNegated) : Expr::leaf(expr.atom, isNegated);
  }
  if (flips) return flattened(expr.negated());
  std::vector<Expr> parts;
  for (const Expr& part : expr.parts) parts.push_back(flattened(part));
  if (parts.empty()) return expr;
  return Expr::join(expr.kind, std::move(parts));
}

AtomPtr atomWith(std::string text, std::string negated) {
  Atom atom;
  atom.text = std::move(text), atom.negated = std::move(negated);
  return std::make_shared<const Atom>(std::move(atom));
}

/// Returns one atom for two bounds of one thing, if a text says both; null otherwise.
AtomPtr both(const Atom& low, const Atom& high) {
  using Kind = Atom::Kind;
  if (low.variable != high.variable || low.left != high.left) return nullptr;
  const bool isDistance = low.kind == Kind::DistanceLow && high.kind == Kind::DistanceHigh;
  const bool isRange = (low.kind == Kind::ColumnLow && high.kind == Kind::ColumnHigh) ||
                       (low.kind == Kind::RowLow && high.kind == Kind::RowHigh);
  const auto join = [](const std::string& a, const char* comparison, const std::string& b) {
    return fmt::format("{} {} {}", a, comparison, b);
  };
  if (isDistance && low.value == 0 && high.value == 0)
    return atomWith(join(low.left, "==", low.right), join(low.left, "!=", low.right));
  const std::string number = fmt::format("{}", high.value);
  if ((isDistance || isRange) && low.value == high.value)
    return atomWith(join(low.variable, "==", number), join(low.variable, "!=", number));
  if (isDistance && low.value == -high.value)
    return atomWith(fmt::format("abs({}) <= {}", low.variable, number),
                    fmt::format("abs({}) > {}", low.variable, number));
  return nullptr;
}

/// Joins bounds of one thing.
Expr merged(const Expr& expr) {
  if (expr.parts.empty()) return expr;
  std::vector<Expr> parts;
  for (const Expr& part : expr.parts) parts.push_back(merged(part));
  const bool isNegated = expr.kind == Expr::Kind::Or;
  const auto isBound = [&](const Expr& part) { return part.kind == Expr::Kind::Leaf && part.isNegated == isNegated; };
  for (size_t i = 0; i < parts.size(); ++i)
    for (size_t j = 0; j < parts.size() && isBound(parts[i]); ++j) {
      if (i == j || !isBound(parts[j])) continue;
      if (AtomPtr one = both(*parts[i].atom, *parts[j].atom)) {
        parts[std::min(i, j)] = Expr::leaf(one, isNegated);
        parts.erase(parts.begin() + int64_t(std::max(i, j)));
        i = size_t(-1);
        break;
      }
    }
  return Expr::join(expr.kind, std::move(parts));
}

/// What a text says: a name for it, and words.
struct Said {
  std::string name, words;
};

/// Returns what is said by the text of a condition, without marks.
Said saidBy(const std::string& text, const std::string& otherwise) {
  struct Row {
    std::regex pattern;
    const char *name, *words; ///< "$1" is the first number
  };
  static const std::vector<Row> kRows = [] {
    std::vector<Row> rows;
    const auto add = [&](const char* pattern, const char* name, const char* words) {
      rows.push_back({std::regex(pattern), name, words});
    };
    add(R"(q_idx >= kv_idx)", "causal", "causal");
    add(R"(q_idx \+ KV_LEN - Q_LEN >= kv_idx)", "causal", "causal, the last query at the last key");
    add(R"(q_idx \+ (\d+) >= kv_idx)", "causal", "causal, query 0 at key $1");
    add(R"(q_idx > kv_idx)", "before", "keys before the query's own");
    add(R"(q_idx <= kv_idx)", "ahead", "keys from the query's own on");
    add(R"(q_idx < kv_idx)", "ahead", "keys behind the query's own");
    add(R"(q_idx == kv_idx)", "itself", "the query's own key");
    add(R"(q_idx( \+ KV_LEN - Q_LEN)? - kv_idx < (\d+))", "window", "a window of $2 keys");
    add(R"(q_idx( \+ KV_LEN - Q_LEN)? - kv_idx <= (\d+))", "window", "a window of $2 keys and the query's own");
    add(R"(q_idx - kv_idx < (\w+\[.*\]))", "window", "a window of $1 keys");
    add(R"(abs\(q_idx - kv_idx\) <= (\d+))", "near", "a window of $1 keys to both sides");
    add(R"(abs\(q_idx - kv_idx\) > (\d+))", "far", "keys farther than $1");
    add(R"(kv_idx < (\d|1[0-6]))", "sinks", "the first $1 keys");
    add(R"(kv_idx < (\d+))", "prefix", "the first $1 keys");
    add(R"(kv_idx <= (\d+))", "prefix", "keys up to $1");
    add(R"(kv_idx >= (\d+))", "later", "keys from $1 on");
    add(R"(q_idx < (\d+))", "first_queries", "the first $1 queries");
    add(R"(q_idx >= (\d+))", "later_queries", "queries from $1 on");
    add(R"(kv_idx (<|>=) (\w+\[.*\]))", "inside", "keys $1 $2");
    add(R"(q_idx (<|>=) (\w+\[.*\]))", "query_inside", "queries $1 $2");
    add(R"(q_idx // (\d+) == kv_idx // \d+)", "same_chunk", "chunks of $1");
    add(R"(\(q_idx - (\d+)\) // (\d+) == \(kv_idx - \d+\) // \d+)", "same_chunk", "chunks of $2 from $1 on");
    add(R"(q_idx // (\d+) >= kv_idx // \d+)", "causal", "causal by chunks of $1");
    add(R"(\(?q_idx - kv_idx\)? % (\d+) == (\d+))", "stride", "each $1th distance");
    add(R"(q_idx % (\d+) == kv_idx % \d+)", "stride", "equal remainders of $1");
    add(R"(document[\w]*\[.*\] == .*)", "same_document", "documents");
    add(R"(\(document[\w]*\[.*\] == .*)", "same_document", "documents, with padding");
    add(R"(document[\w]*\[.*\] != .*)", "other_document", "different documents");
    add(R"(\(order.* < subtree_end.*)", "ancestor", "a tree: a token sees its ancestors and itself");
    return rows;
  }();
  std::smatch match;
  for (const Row& row : kRows)
    if (std::regex_match(text, match, row.pattern)) return {row.name, match.format(row.words)};
  return {"", otherwise.empty() ? text : otherwise};
}

void orderByCost(Expr& expr) {
  for (Expr& part : expr.parts) orderByCost(part);
  const auto weight = [](const Expr& part) {
    if (part.kind != Expr::Kind::Leaf) return 1000.0;
    const bool isCausal = part.atom->kind == Atom::Kind::DistanceLow && !part.isNegated;
    return isCausal ? 0.0 : double(part.atom->text.size());
  };
  std::stable_sort(expr.parts.begin(), expr.parts.end(),
                   [&](const Expr& a, const Expr& b) { return weight(a) < weight(b); });
}

/// Replaces all places of a text.
void replaceAll(std::string& in, const std::string& from, const std::string& to) {
  for (size_t at = in.find(from); at != std::string::npos; at = in.find(from, at + to.size()))
    in.replace(at, from.size(), to);
}

/// Returns how often a text with a number at its end stands in another.
size_t placesOf(const std::string& in, const std::string& what) {
  size_t count = 0;
  for (size_t at = in.find(what); at != std::string::npos; at = in.find(what, at + what.size()))
    count += !std::isdigit(in[std::min(at + what.size(), in.size() - 1)]) || at + what.size() == in.size();
  return count;
}

/// Replaces all places of a text with a number at its end.
void replaceWhole(std::string& in, const std::string& from, const std::string& to) {
  for (size_t at = in.find(from); at != std::string::npos; at = in.find(from, at + 1))
    if (at + from.size() == in.size() || !std::isdigit(in[at + from.size()])) in.replace(at, from.size(), to);
}

/// Writes one expression.
class Writer {
public:
  explicit Writer(const Expr& expr) : expr(merged(flattened(expr))) { orderByCost(this->expr); }

  Written run(const std::string& source) {
    nameTables();
    Written written;
    forEachLeaf(expr, [&](const Atom& atom, bool isNegated) {
      std::string what = isNegated ? atom.negated : atom.text;
      replaceMarks(what);
      what = saidBy(what, isNegated ? atom.whatNegated : atom.what).words;
      if (std::find(written.recognised.begin(), written.recognised.end(), what) == written.recognised.end())
        written.recognised.push_back(what);
    });
    if (written.recognised.empty())
      written.recognised.push_back(expr.kind == Expr::Kind::True ? "all is live" : "nothing is live");
    std::string body = textOf(expr).first, lines;
    written.expression = body;
    size_t leaves = 0;
    forEachLeaf(expr, [&](const Atom&, bool) { ++leaves; });
    std::vector<std::pair<std::string, std::string>> named;
    if (leaves > 2 && 11 + body.size() > 60) {
      std::map<std::string, int> used;
      body = textOf(expr, &named, &used).first;
    }
    std::string all = body;
    for (const auto& [name, text] : named) all += "\n" + text;
    for (auto& [from, name] : coordinates(all)) {
      lines += fmt::format("    {} = {}\n", name, from);
      replaceWhole(body, from, name);
      for (auto& [ignored, text] : named) replaceWhole(text, from, name);
    }
    for (const auto& [name, text] : named) lines += fmt::format("    {} = {}\n", name, text);
    std::string title = written.recognised.front();
    if (title.find("_idx") == std::string::npos) title.front() = char(std::toupper(title.front()));
    for (size_t i = 1; i < written.recognised.size(); ++i) title += "; " + written.recognised[i];
    std::string head = fmt::format("\"\"\"{}. Inferred from {}.\"\"\"\n\n", title, source);
    std::set<std::string> imports;
    std::string declarations;
    for (const auto& [name, table] : tables) {
      imports.insert(table->isBool ? "bool" : "i32");
      for (const std::string& extent : table->extent)
        if (std::isalpha(extent.front())) imports.insert(extent);
      declarations += fmt::format("{}: {}[{}]\n", name, table->isBool ? "bool" : "i32", fmt::join(table->extent, ", "));
    }
    written.tables = tables;
    if (!declarations.empty())
      declarations = fmt::format("from attnc import {}\n\n{}", fmt::join(imports, ", "), declarations);
    written.text = head + (declarations.empty() ? "" : declarations + "\n\n") + "def mask_mod(b, h, q_idx, kv_idx):\n" +
                   lines + "    return " + body + "\n";
    if (declarations.empty()) replaceAll(written.text, "\"\"\"\n\ndef", "\"\"\"\n\n\ndef");
    return written;
  }

private:
  /// Gives names to tables. Equal ones are one.
  void nameTables() {
    std::map<const Table*, int> plain, inverted;
    forEachLeaf(expr, [&](const Atom& atom, bool isNegated) {
      for (const TablePtr& table : atom.tables) {
        order.push_back(table);
        (isNegated ? inverted : plain)[table.get()]++;
      }
    });
    std::map<std::string, int> used;
    for (const TablePtr& table : order) {
      const std::string mark = fmt::format("${}$", static_cast<const void*>(table.get()));
      if (names.count(mark)) continue;
      const bool isInverted = table->isBool && !plain.count(table.get());
      Table copy = *table;
      if (isInverted)
        for (int32_t& value : copy.values) value = !value;
      const auto same = std::find_if(tables.begin(), tables.end(), [&](const auto& other) {
        return other.second->values == copy.values && other.second->shape == copy.shape &&
               other.second->isBool == copy.isBool;
      });
      if (same != tables.end()) {
        names[mark] = same->first;
      } else {
        const int count = ++used[copy.name];
        const std::string name = count == 1 ? copy.name : fmt::format("{}_{}", copy.name, count);
        tables.push_back({name, std::make_shared<const Table>(std::move(copy))});
        names[mark] = name;
      }
      if (isInverted) inverts.insert(mark);
    }
  }

  void replaceMarks(std::string& text) const {
    for (const auto& [mark, name] : names) {
      if (inverts.count(mark)) replaceAll(text, "~" + mark, name);
      replaceAll(text, mark, name);
    }
  }

  std::pair<std::string, Binds> textOf(const Expr& one,
                                       std::vector<std::pair<std::string, std::string>>* named = nullptr,
                                       std::map<std::string, int>* used = nullptr) {
    switch (one.kind) {
    case Expr::Kind::True: return {"kv_idx >= 0", Binds::Comparison};
    case Expr::Kind::False: return {"kv_idx < 0", Binds::Comparison};
    case Expr::Kind::Leaf: {
      std::string text = one.isNegated ? one.atom->negated : one.atom->text;
      replaceMarks(text);
      const Binds binds = bindsOf(text);
      if (!named || binds == Binds::Element) return {text, binds};
      for (const auto& [name, known] : *named)
        if (known == text) return {name, Binds::Element};
      std::string name = saidBy(text, "").name;
      if (name.empty()) name = "term";
      for (const auto& [table, ignored] : tables)
        if (table == name) name += "_term";
      const int count = ++(*used)[name];
      if (count > 1) name += fmt::format("_{}", count);
      named->push_back({name, text});
      return {name, Binds::Element};
    }
    case Expr::Kind::And:
    case Expr::Kind::Or: break;
    }
    const Binds own = one.kind == Expr::Kind::And ? Binds::And : Binds::Or;
    std::string text;
    for (const Expr& part : one.parts) {
      const auto [inner, binds] = textOf(part, named, used);
      if (!text.empty()) text += own == Binds::And ? " & " : " | ";
      text += binds == Binds::Element || binds == own ? inner : "(" + inner + ")";
    }
    return {text, own};
  }

  /// Returns coordinates that are read more than once, and names for them.
  static std::vector<std::pair<std::string, std::string>> coordinates(std::string& text) {
    static const std::regex cut(R"((\((q|kv)_idx [-+] \d+\)|(q|kv)_idx)( (//|%) \d+)+)");
    std::vector<std::string> found;
    for (std::sregex_iterator it(text.begin(), text.end(), cut), end; it != end; ++it)
      if (std::find(found.begin(), found.end(), it->str()) == found.end()) found.push_back(it->str());
    std::erase_if(found, [&](const std::string& one) { return placesOf(text, one) < 2; });
    // Longer texts first, since they contain shorter ones.
    std::stable_sort(found.begin(), found.end(),
                     [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
    std::vector<std::string> shapes; // with "q_idx" for both
    const auto shapeOf = [](std::string one) {
      replaceAll(one, "kv_idx", "q_idx");
      return one;
    };
    for (const std::string& one : found)
      if (std::find(shapes.begin(), shapes.end(), shapeOf(one)) == shapes.end()) shapes.push_back(shapeOf(one));
    std::sort(shapes.begin(), shapes.end(), [](const std::string& a, const std::string& b) {
      return std::count(a.begin(), a.end(), '%') < std::count(b.begin(), b.end(), '%');
    });
    static const std::vector<std::vector<std::string>> kNames = {{"_block"}, {"y", "x"}, {"t", "y", "x"}};
    std::vector<std::pair<std::string, std::string>> result;
    for (const std::string& one : found) {
      const size_t at = size_t(std::find(shapes.begin(), shapes.end(), shapeOf(one)) - shapes.begin());
      const bool isKey = one.find("kv_idx") != std::string::npos;
      const std::string suffix = shapes.size() > 3 ? fmt::format("{}", at) : kNames[shapes.size() - 1][at];
      const std::string axis = suffix == "_block" ? (isKey ? "kv" : "q") : isKey ? "k" : "q";
      result.push_back({one, axis + suffix});
      replaceWhole(text, one, axis + suffix);
    }
    std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    static const std::regex clamped(R"((\([\w\s/%+-]*\)|\(\([^()]*\)[^()]*\))\.clamp\(0, \d+\))");
    std::vector<std::string> clamps;
    for (std::sregex_iterator it(text.begin(), text.end(), clamped), end; it != end; ++it)
      if (std::find(clamps.begin(), clamps.end(), it->str()) == clamps.end()) clamps.push_back(it->str());
    for (const std::string& one : clamps) {
      std::string name = "start";
      if (clamps.size() > 1)
        for (const char* axis : {"qy", "qx", "qt"})
          if (one.find(axis) != std::string::npos) name = fmt::format("start_{}", axis[1]);
      result.push_back({one, name});
    }
    return result;
  }

  Expr expr;
  std::vector<TablePtr> order;
  std::vector<std::pair<std::string, TablePtr>> tables;
  std::map<std::string, std::string> names;
  std::set<std::string> inverts;
};

} // namespace

Written write(const Expr& expr, const std::string& source) { return Writer(expr).run(source); }

} // namespace attnc::inferred
