// No text of a mod gets into generated code but as a mangled name or inside the literal of #line.
#include "codegen/host_mods.h"
#include "codegen/mod_source.h"
#include "codegen/names.h"

#include <catch2/catch.hpp>

#include <set>

namespace attnc {
namespace {

using codegen::Names;
using ir::Op;
using ir::Type;
using ir::Value;

/// A mod that reads a tensor, a scalar and an extent of each of the given names, at every level.
ir::Module moduleNaming(const std::vector<std::string>& names, std::string file) {
  ir::Module module;
  module.sourceName = std::move(file);
  Value sum = module.param(ir::ParamKind::Score);
  auto add = [&](Value value) { sum = module.make(Op::Add, Type::F32, {sum, value}, 0, 3); };
  for (const std::string& name : names) {
    unsigned index = unsigned(module.tensors.size());
    module.dims.push_back(name);
    module.tensors.push_back({name, DType::F32, {{true, int64_t(module.dims.size() - 1)}}});
    module.scalars.push_back({name, Type::F32});
    add(module.make(Op::Cast, Type::F32, {module.dim(unsigned(module.dims.size() - 1))}, 0, 4));
    add(module.scalar(index));
    for (ir::ParamKind at : {ir::ParamKind::H, ir::ParamKind::QIdx, ir::ParamKind::KvIdx})
      add(module.make(Op::Load, Type::F32, {module.param(at)}, index, 5));
  }
  module.setOutput(ir::kScore, sum);
  return module;
}

std::vector<std::string> hostileNames() {
  return {"int",
          "float",
          "score",
          "head",
          "args",
          "q_idx",
          "ATTNC_DEVICE",
          "__device__",
          "__LINE__",
          "NULL",
          "assert",
          "size0",
          "a",
          "a_2",
          "a_size0",
          "имя",
          "naïve",
          "a b",
          "x; } asm(\"trap;\"); {",
          "\n#error injected\n",
          "{0}",
          "{1}{9}",
          "*/",
          "\"",
          "\\",
          "",
          std::string(5000, 'l'),
          std::string(5000, 'l') + "2"};
}

} // namespace

TEST_CASE("names are unique, bounded and made of [A-Za-z0-9_]", "[codegen]") {
  Names names;
  std::set<std::string> seen;
  for (int round = 0; round < 3; ++round)
    for (const std::string& name : hostileNames()) {
      std::string mangled = names.unique("v_", name);
      INFO(mangled);
      CHECK(mangled.size() <= 64);
      CHECK(mangled.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
            std::string::npos);
      CHECK(mangled.substr(0, 2) == "v_");
      CHECK(Names().unique("t_", name, "_size0").size() <= 64);
      CHECK(seen.insert(mangled).second);
    }
}

TEST_CASE("a file name cannot end its literal", "[codegen]") {
  CHECK(codegen::fileLiteral("alibi.py") == "\"alibi.py\"");
  CHECK(codegen::fileLiteral("a\"b\\c") == "\"a\\\"b\\\\c\"");
  CHECK(codegen::fileLiteral("a\nb\r\t\x7f") == "\"a_b___\"");
  CHECK(codegen::fileLiteral(llvm::StringRef("a\0b", 3)) == "\"a_b\"");
  CHECK(codegen::fileLiteral("a?\?/") == "\"a\\?\\?/\""); // no trigraph
  CHECK(codegen::fileLiteral("/домой/é.py") == "\"/домой/é.py\"");
  CHECK(codegen::fileLiteral("\xff\xfe") == "\"__\"");
  CHECK(codegen::fileLiteral(std::string(5000, 'x')).size() == 514);
}

TEST_CASE("constants are written so that they read back", "[codegen]") {
  auto real = [](float value) { return codegen::literal(Type::F32, std::bit_cast<uint32_t>(value)); };
  CHECK(real(1) == "1.0f");
  CHECK(real(-0.0f) == "-0.0f");
  CHECK(real(0.1f) == "0.1f");
  CHECK(real(1e30f) == "1e+30f");
  CHECK(real(INFINITY) == "infinity()");
  CHECK(real(-INFINITY) == "-infinity()");
  CHECK(codegen::literal(Type::F32, 0x7fc00001) == "f32_bits(0x7fc00001u)");
  CHECK(codegen::literal(Type::I32, -5) == "-5");
  CHECK(codegen::literal(Type::I32, INT32_MIN) == "-2147483647 - 1");
  CHECK(codegen::literal(Type::I64, INT64_MIN) == "-9223372036854775807ll - 1");
  CHECK(codegen::literal(Type::I64, 7) == "7ll");
  CHECK(codegen::literal(Type::Bool, 1) == "true");
}

TEST_CASE("a mod of hostile names and file names compiles and computes its sum", "[codegen]") {
  std::vector<std::string> names = hostileNames();
  std::string file = "evil\"\n#include \"/etc/passwd\"\n\\?\?/ \xff.py";
  ir::Module module = moduleNaming(names, file);
  codegen::ModSource source = codegen::emitMod(module, analysis::modFacts(module), module.size());
  CHECK(source.text.find("injected") != std::string::npos); // as part of a name
  CHECK(source.text.find("\n#error") == std::string::npos);
  CHECK(source.text.find("\n#include \"/etc") == std::string::npos);

  test::HostMods host;
  host.add(source);
  INFO(source.text);
  host.build();

  // score + sum over names of extent + scalar + three elements.
  std::vector<float> data = {0.5f, 2, 4};
  ir::Bindings bindings;
  bindings.dims = {1, 3, 1, 3, 3};
  float want = 100;
  for (size_t i = 0; i < names.size(); ++i) {
    bindings.tensors.push_back(TensorView::contiguous(data.data(), DType::F32, {3}));
    bindings.scalars.push_back({0, float(i)});
    bindings.dims.push_back(3);
    want += 3 + float(i) + 0.5f + 2 + 4;
  }
  const std::vector<uint64_t> words = test::wordsOf(source, bindings);
  test::Sample sample{0, 0, 1, 2, 100};
  test::Outcome outcome;
  host.function(0)(words.data(), &sample, 1, &outcome);
  CHECK(outcome.score == want);
  CHECK(outcome.mask);
}

} // namespace attnc
