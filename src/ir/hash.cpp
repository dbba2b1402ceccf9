// Canonical bytes and their hash; see hash.h. Raise kVersion if the layout or the meaning of ops.def changes.
#include "ir/hash.h"

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/SHA256.h>

#include <algorithm>
#include <limits>

namespace attnc::ir {
namespace {

constexpr char kVersion[] = "attnc-ir-3";
constexpr char kConditionMark[] = "condition"; // stands among the parameters, none of which has this name
constexpr uint32_t kUnnumbered = std::numeric_limits<uint32_t>::max();

class Writer {
public:
  explicit Writer(const Module& module) : module(module), number(module.size(), kUnnumbered) {}

  std::string bytes() {
    text(kVersion);
    captures();
    std::string head = std::move(out);
    out.clear();
    std::vector<int64_t> values;
    for (const Output& output : module.outputs()) values.push_back(root(output.value));
    std::string nodes = std::move(out);
    out = std::move(head);
    integer(int64_t(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const Output& output = module.outputs()[i];
      text(output.name);
      for (ParamKind param : kParams)
        if (output.params.contains(param)) text(name(param));
      if (output.isCondition()) {
        text(kConditionMark);
        text(output.words);
      }
      text("");
      integer(values[i]);
    }
    text(nodes);
    return std::move(out);
  }

private:
  void integer(int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) out += char(uint64_t(value) >> shift);
  }
  void text(llvm::StringRef value) {
    integer(int64_t(value.size()));
    out.append(value.data(), value.size());
  }

  void captures() {
    integer(int64_t(module.dims.size()));
    integer(int64_t(module.tensors.size()));
    for (const TensorCapture& tensor : module.tensors) {
      text(llvm::StringRef(dtypeName(tensor.dtype).data(), dtypeName(tensor.dtype).size()));
      integer(int64_t(tensor.shape.size()));
      for (const Extent& extent : tensor.shape) {
        integer(extent.isNamed);
        integer(extent.value);
      }
      if (!tensor.choices) continue;
      text("chooses");
      integer(tensor.choices);
    }
    integer(int64_t(module.scalars.size()));
    for (const ScalarCapture& scalar : module.scalars) text(name(scalar.type));
    if (module.grids.empty()) return;
    text("grids");
    integer(int64_t(module.grids.size()));
    for (const Grid& grid : module.grids) {
      integer(int64_t(grid.extents.size()));
      for (const Grid::Number& extent : grid.extents) gridNumber(extent);
      gridNumber(grid.before);
    }
  }

  void gridNumber(const Grid::Number& value) {
    integer(int64_t(value.kind));
    integer(value.value);
  }

  /// Writes what an output's value needs and returns its number. Keeps its own stack, since a chain of operations may
  /// be longer than the program's stack is deep.
  int64_t root(Value value) {
    llvm::SmallVector<std::pair<Value, unsigned>, 32> path = {{value, 0}};
    while (!path.empty()) {
      auto& [at, next] = path.back();
      const Node& node = module[at];
      if (number[at.id] == kUnnumbered && next < node.operands.size()) {
        path.push_back({node.operands[next++], 0});
        continue;
      }
      if (number[at.id] == kUnnumbered) write(at);
      path.pop_back();
    }
    return number[value.id];
  }

  void write(Value value) {
    const Node& node = module[value];
    number[value.id] = count++;
    text(info(node.op).text);
    text(name(node.type));
    integer(node.op == Op::Iter || node.op == Op::Sum ? loopAttr(node) : node.attr);
    integer(int64_t(node.operands.size()));
    for (Value operand : node.operands) integer(number[operand.id]);
  }

  /// Returns the loop with its id replaced by its order of first use, since ids of loops have no meaning.
  int64_t loopAttr(const Node& node) {
    Loop loop = Loop::of(node);
    auto found = std::find(loopIds.begin(), loopIds.end(), loop.id);
    if (found == loopIds.end()) found = loopIds.insert(loopIds.end(), loop.id);
    loop.id = unsigned(found - loopIds.begin());
    return loop.attr();
  }

  const Module& module;
  std::vector<uint32_t> number;
  std::vector<unsigned> loopIds; // in order of first use
  uint32_t count = 0;
  std::string out;
};

} // namespace

std::string canonicalBytes(const Module& module) { return Writer(module).bytes(); }

std::string canonicalHash(const Module& module) {
  llvm::SHA256 hash;
  hash.update(canonicalBytes(module));
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

} // namespace attnc::ir
