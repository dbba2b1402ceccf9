// Reads IR text line by line; printer.h has the grammar. Each step returns false after recording an error; the first
// error ends the reading.
#include "ir/reader.h"

#include "ir/verifier.h"
#include "support/readable.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace attnc::ir {
namespace {

using llvm::StringRef;

std::optional<Op> opNamed(StringRef text) {
#define OP(Name, spelling, ...)                                                                                        \
  if (text == spelling) return Op::Name;
#include "ir/ops.def"
  return std::nullopt;
}

std::optional<Type> typeNamed(StringRef text) {
  for (Type type : {Type::Bool, Type::I32, Type::I64, Type::F32})
    if (text == name(type)) return type;
  return std::nullopt;
}

std::optional<DType> dtypeNamed(StringRef text) {
  for (unsigned dtype = 0; dtype <= unsigned(DType::F32); ++dtype)
    if (std::string_view(text.data(), text.size()) == dtypeName(DType(dtype))) return DType(dtype);
  return std::nullopt;
}

template <class T> std::optional<T> number(StringRef text, int base = 10) {
  T value{};
  std::from_chars_result result{};
  if constexpr (std::is_floating_point_v<T>)
    result = std::from_chars(text.begin(), text.end(), value);
  else
    result = std::from_chars(text.begin(), text.end(), value, base);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.end()) return std::nullopt;
  return value;
}

bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

class Reader {
public:
  Reader(StringRef text, StringRef name) : text(text), fileName(readable(name)) {
    for (ParamKind param : kParams) params[ir::name(param)] = param;
    for (const std::string& dim : module.dims) dims.try_emplace(dim, dims.size());
  }

  Expected<Module> run() {
    for (StringRef left = text; !left.empty() && error.empty();) {
      StringRef current;
      std::tie(current, left) = left.split('\n');
      ++lineNumber;
      line = current;
      at = 0;
      if (!statement()) return located();
    }
    if (std::optional<std::string> finding = verify(module)) {
      at = 0;
      fail(*finding);
      return located();
    }
    return std::move(module);
  }

private:
  // ---- Errors ----

  bool fail(std::string message) {
    error = std::move(message);
    return false;
  }

  Error located() {
    Diagnostic diagnostic{"ir-syntax", fileName, lineNumber, int(at) + 1, readable(error), "", ""};
    llvm::SourceMgr sources;
    auto buffer = llvm::MemoryBuffer::getMemBuffer(text, fileName, /*RequiresNullTerminator=*/false);
    size_t offset = line.data() ? size_t(line.data() - text.data()) + std::min(at, line.size()) : 0;
    auto location = llvm::SMLoc::getFromPointer(buffer->getBufferStart() + offset);
    sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
    llvm::raw_string_ostream stream(diagnostic.rendered);
    sources.PrintMessage(stream, location, llvm::SourceMgr::DK_Error, error, {}, {}, /*ShowColors=*/false);
    stream.flush();
    std::string message = diagnostic.rendered = readableLines(diagnostic.rendered);
    return Error::mod(std::move(message), {std::move(diagnostic)});
  }

  // ---- Tokens of one line ----

  void skipBlanks() {
    while (at < line.size() && isBlank(line[at])) ++at;
  }
  bool atEnd() {
    skipBlanks();
    return at >= line.size() || line[at] == ';';
  }
  bool take(StringRef wanted) {
    skipBlanks();
    if (!std::string_view(line.substr(at)).starts_with(wanted)) return false;
    at += wanted.size();
    return true;
  }
  bool expect(StringRef wanted) { return take(wanted) || fail(fmt::format("expected '{}'", wanted.str())); }
  bool expectEnd() { return atEnd() || fail("expected the end of the line"); }

  /// Returns everything up to a blank or punctuation.
  StringRef word() {
    skipBlanks();
    StringRef result = line.substr(at).take_until([](char c) { return isBlank(c) || StringRef(",[];!=").contains(c); });
    at += result.size();
    return result;
  }

  StringRef nameCharacters() const {
    return line.substr(at).take_while([](char c) { return isIdentifier(StringRef(&c, 1)) || (c >= '0' && c <= '9'); });
  }

  bool identifier(std::string& result) {
    skipBlanks();
    StringRef found = nameCharacters();
    if (!isIdentifier(found)) return fail("expected a name");
    at += found.size();
    result = found.str();
    return true;
  }

  // ---- Operands ----

  bool constant(Type type, int64_t bits, Value& result) {
    result = module.constant(type, bits);
    return true;
  }

  bool floatConstant(StringRef token, Value& result) {
    if (token == "nan") return constant(Type::F32, 0x7fc00000, result);
    if (std::string_view(token).starts_with("nan:0x")) {
      auto bits = number<uint32_t>(token.substr(6), 16);
      bool isNan = bits && (*bits & 0x7f800000) == 0x7f800000 && (*bits & 0x7fffff) != 0;
      return isNan ? constant(Type::F32, *bits, result) : fail("expected the bits of a NaN");
    }
    if (token != "inf" && token != "-inf" && !isdigit(token.ltrim('-').front())) return fail("expected an operand");
    auto value = number<float>(token);
    if (!value) return fail("not a number that fits into an f32");
    result = module.constF32(*value);
    return true;
  }

  bool numberConstant(StringRef token, Value& result) {
    if (token.ltrim('-').empty()) return fail("expected an operand");
    if (token.find_first_of(".en") != StringRef::npos) return floatConstant(token, result);
    bool isLong = std::string_view(token).ends_with('L');
    auto value = number<int64_t>(isLong ? token.drop_back() : token);
    if (!value) return fail("expected an operand");
    if (!isLong && *value != int32_t(*value)) return fail("the constant does not fit into an i32");
    return constant(isLong ? Type::I64 : Type::I32, *value, result);
  }

  /// Returns the loop spelled "i0:16". The percent sign before it has been read.
  static std::optional<Loop> loopNamed(StringRef token) {
    auto [id, count] = token.split(':');
    if (!id.consume_front("i") || count.empty()) return std::nullopt;
    auto idNumber = number<uint8_t>(id);
    auto rounds = number<int64_t>(count);
    if (!idNumber || *idNumber >= kMaxLoops || !rounds || *rounds < 1 || *rounds > kMaxRounds) return std::nullopt;
    return Loop{*idNumber, *rounds};
  }

  bool namedValue(StringRef token, Value& result) {
    if (std::optional<Loop> loop = loopNamed(token)) {
      result = module.iter(*loop);
      return true;
    }
    auto param = params.find(token);
    if (param != params.end()) {
      result = module.param(param->second);
      return true;
    }
    auto found = values.find(token);
    if (found == values.end()) return fail(fmt::format("%{} is not defined above", token.str()));
    result = found->second;
    return true;
  }

  bool operand(Value& result) {
    skipBlanks();
    size_t start = at;
    StringRef token = word();
    if (parseOperand(token, result)) return true;
    at = start;
    return false;
  }

  bool parseOperand(StringRef token, Value& result) {
    if (token.consume_front("%")) return namedValue(token, result);
    if (token.consume_front("@")) {
      auto found = scalars.find(token);
      if (found != scalars.end()) return result = module.scalar(found->second), true;
      return fail(fmt::format("scalar {} is not declared", token.str()));
    }
    if (token.consume_front("#")) {
      auto found = dims.find(token);
      if (found != dims.end()) return result = module.dim(found->second), true;
      return fail(fmt::format("dim {} is not declared", token.str()));
    }
    if (token == "true" || token == "false") return constant(Type::Bool, token == "true", result);
    return numberConstant(token, result);
  }

  bool operands(StringRef close, llvm::SmallVectorImpl<Value>& result) {
    for (bool more = true; more;) {
      Value value;
      if (!operand(value)) return false;
      result.push_back(value);
      more = take(",");
    }
    return close.empty() || expect(close);
  }

  // ---- Statements ----

  bool string(std::string& result) {
    if (!expect("\"")) return false;
    while (at < line.size() && line[at] != '"') {
      char c = line[at++];
      if (c == '\\') {
        if (at >= line.size()) return fail("the string does not end");
        c = line[at++];
        if (c == 'x') {
          auto code = number<uint8_t>(line.substr(at, 2), 16);
          if (!code) return fail("expected two hexadecimal digits");
          c = char(*code);
          at += 2;
        }
      }
      result += c;
    }
    return expect("\"");
  }

  bool sourceStatement() { return string(module.sourceName); }

  /// Reads "!7", if present.
  bool lineMark(uint32_t& result) {
    if (!take("!")) return true;
    auto made = number<uint32_t>(word());
    if (!made) return fail("expected a line number");
    result = *made;
    return true;
  }

  bool dimStatement() {
    std::string name;
    if (!identifier(name)) return false;
    if (!dims.try_emplace(name, unsigned(module.dims.size())).second)
      return fail(fmt::format("dim {} exists already", name));
    module.dims.push_back(std::move(name));
    return true;
  }

  bool extent(Extent& result) {
    skipBlanks();
    size_t start = at;
    StringRef token = word();
    if (auto value = number<int64_t>(token)) {
      result = {false, *value};
      return true;
    }
    auto found = dims.find(token);
    if (found != dims.end()) return result = {true, int64_t(found->second)}, true;
    at = start;
    return fail("expected an extent: a number or the name of a dim declared above");
  }

  bool tensorStatement() {
    TensorCapture tensor;
    if (!identifier(tensor.name) || !expect(":")) return false;
    skipBlanks();
    size_t start = at;
    std::optional<DType> dtype = dtypeNamed(word());
    if (!dtype) return at = start, fail("expected a dtype");
    tensor.dtype = *dtype;
    for (bool more = take("["); more; more = take(",")) {
      if (tensor.shape.size() == TensorView::kMaxRank) return fail("too many axes");
      tensor.shape.emplace_back();
      if (!extent(tensor.shape.back())) return false;
    }
    if (!tensor.shape.empty() && !expect("]")) return false;
    if (take("chooses")) {
      const auto choices = number<int32_t>(word());
      if (!choices || *choices < 1) return fail("expected a number of mods");
      tensor.choices = *choices;
    }
    tensors.try_emplace(tensor.name, unsigned(module.tensors.size()));
    module.tensors.push_back(std::move(tensor));
    return true;
  }

  bool scalarStatement() {
    ScalarCapture scalar;
    if (!identifier(scalar.name) || !expect(":")) return false;
    skipBlanks();
    size_t start = at;
    std::optional<Type> type = typeNamed(word());
    if (!type || *type == Type::I64) return at = start, fail("expected i32, f32 or bool");
    scalar.type = *type;
    scalars.try_emplace(scalar.name, unsigned(module.scalars.size()));
    module.scalars.push_back(std::move(scalar));
    return true;
  }

  bool gridNumber(Grid::Number& result) {
    skipBlanks();
    const size_t start = at;
    StringRef token = word();
    if (token == "rest") {
      if (!gridNumber(result)) return false;
      if (result.kind != Grid::Number::Kind::Dim) return at = start, fail("expected #Q_LEN or #KV_LEN behind rest");
      result.kind = Grid::Number::Kind::Rest;
      return true;
    }
    const bool isScalar = token.consume_front("@");
    if (isScalar || token.consume_front("#")) {
      const llvm::StringMap<unsigned>& known = isScalar ? scalars : dims;
      auto found = known.find(token);
      if (found == known.end()) return at = start, fail("expected the name of a scalar or a dim declared above");
      result = {isScalar ? Grid::Number::Kind::Scalar : Grid::Number::Kind::Dim, int64_t(found->second)};
      return true;
    }
    auto value = number<int32_t>(token);
    if (!value) return at = start, fail("expected a number, @scalar or #DIM");
    result = {Grid::Number::Kind::Constant, *value};
    return true;
  }

  bool gridStatement() {
    Grid grid;
    if (!expect("[")) return false;
    for (bool more = true; more; more = take(",")) {
      grid.extents.emplace_back();
      if (!gridNumber(grid.extents.back())) return false;
      if (grid.extents.size() > kMaxGridAxes) return fail("too many axes");
    }
    if (!expect("]") || (take("before") && !gridNumber(grid.before))) return false;
    module.grids.push_back(std::move(grid));
    return true;
  }

  bool parameters(ParamSet& result) {
    if (!expect("(")) return false;
    for (bool more = !take(")"); more;) {
      std::string name;
      if (!identifier(name)) return false;
      auto param = params.find(name);
      if (param == params.end()) return at -= name.size(), fail(fmt::format("there is no parameter {}", name));
      result |= {param->second};
      more = take(",");
      if (!more && !expect(")")) return false;
    }
    return true;
  }

  bool outputStatement() {
    Output output;
    if (!identifier(output.name)) return false;
    const std::string& name = output.name;
    if (module.output(name)) return at -= name.size(), fail(fmt::format("output {} exists already", name));
    if (!parameters(output.params) || !expect("->") || !operand(output.value)) return false;
    if (take("else")) {
      if (!string(output.words)) return false;
      if (!output.isCondition()) return fail("the words of a condition are empty");
    }
    if (!lineMark(output.line)) return false;
    module.setOutput(std::move(output));
    return true;
  }

  bool loadOperands(Node& node) {
    skipBlanks();
    size_t start = at;
    auto found = tensors.find(word());
    if (found == tensors.end()) return at = start, fail("expected the name of a tensor");
    node.attr = int64_t(found->second);
    return !take("[") || operands("]", node.operands);
  }

  bool sumOperands(Node& node) {
    skipBlanks();
    size_t start = at;
    StringRef token = word();
    std::optional<Loop> loop = token.consume_front("%") ? loopNamed(token) : std::nullopt;
    if (!loop) return at = start, fail("expected the index of a loop: %i0:16");
    node.attr = loop->attr();
    return expect(",") && operands("", node.operands);
  }

  /// Reads "grid0.1," of coord, or "grid0," of in_grid.
  bool gridOperands(Node& node) {
    skipBlanks();
    const size_t start = at;
    auto [name, axisText] = word().split('.');
    auto grid = name.consume_front("grid") ? number<unsigned>(name) : std::nullopt;
    auto axis = node.op == Op::Coord ? number<unsigned>(axisText) : std::optional(0u);
    if (!grid || *grid >= module.grids.size() || !axis || *axis >= kMaxGridAxes)
      return at = start, fail(node.op == Op::Coord ? "expected an axis of a grid declared above: grid0.1"
                                                   : "expected a grid declared above: grid0");
    node.attr = GridAxis{*grid, *axis}.attr();
    return expect(",") && operands("", node.operands);
  }

  bool operandsOf(Node& node) {
    if (info(node.op).rule == TypeRule::Grid) return gridOperands(node);
    if (node.op == Op::Load) return loadOperands(node);
    return node.op == Op::Sum ? sumOperands(node) : operands("", node.operands);
  }

  bool valueStatement() {
    std::string name = word().str();
    if (name.empty() || params.count(name) || values.count(name) || loopNamed(name))
      return fail(fmt::format("%{} cannot be defined here", name));
    if (!expect("=")) return false;
    skipBlanks();
    size_t start = at;
    std::optional<Op> op = opNamed(word());
    if (!op || info(*op).rule == TypeRule::Leaf) return at = start, fail("expected an operation");
    skipBlanks();
    size_t typeStart = at;
    std::optional<Type> type = typeNamed(word());
    if (!type) return at = typeStart, fail("expected a type: bool, i32, i64 or f32");
    Node node{*op, *type, 0, {}, 0};
    if (!operandsOf(node)) return false;
    if (!lineMark(node.line)) return false;
    return define(name, node, start);
  }

  bool define(const std::string& name, Node& node, size_t start) {
    TypeRule rule = info(node.op).rule;
    if (rule == TypeRule::Compare || rule == TypeRule::Test) {
      if (!node.operands.empty() && module[node.operands[0]].type != node.type)
        return at = start, fail("the operands have another type");
      node.type = Type::Bool;
    }
    if (std::optional<std::string> finding = verifyNode(module, node)) return at = start, fail(*finding);
    values[name] = module.make(node.op, node.type, node.operands, node.attr, node.line);
    return true;
  }

  bool statement() {
    if (atEnd()) return true;
    if (take("%")) return valueStatement() && expectEnd();
    size_t start = at;
    StringRef keyword = nameCharacters();
    at += keyword.size();
    if (keyword == "source") return sourceStatement() && expectEnd();
    if (keyword == "dim") return dimStatement() && expectEnd();
    if (keyword == "tensor") return tensorStatement() && expectEnd();
    if (keyword == "scalar") return scalarStatement() && expectEnd();
    if (keyword == "grid") return gridStatement() && expectEnd();
    if (keyword == "output") return outputStatement() && expectEnd();
    at = start;
    return fail("expected source, dim, tensor, scalar, grid, output or %name =");
  }

  StringRef text, line;
  std::string fileName;
  size_t at = 0;
  int lineNumber = 0;
  std::string error;
  Module module;
  llvm::StringMap<ParamKind> params;
  llvm::StringMap<unsigned> dims, tensors, scalars; // name -> index; if two have the same name (an error), the first
  llvm::StringMap<Value> values;
};

} // namespace

Expected<Module> read(std::string_view text, std::string_view name) {
  return Reader({text.data(), text.size()}, {name.data(), name.size()}).run();
}

} // namespace attnc::ir
