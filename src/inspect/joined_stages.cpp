#include "inspect/joined_stages.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringExtras.h>

#include <map>
#include <regex>
#include <set>

namespace attnc {
namespace {

constexpr llvm::StringLiteral kContract = "mod/contract.cuh", kMod = "attnc_mod.cuh", kConfig = "attnc_config.cuh";

/// Lists of each stage: a configuration has one of them, or none.
constexpr llvm::StringLiteral kNoLists = "#undef ATTNC_WGMMA_SHAPES\n#undef ATTNC_WGMMA_SHAPES_E4M3\n";

/// Returns the name in `#include "name"`, or an empty one.
llvm::StringRef included(llvm::StringRef line) {
  line = line.trim();
  return line.consume_front("#include \"") ? line.take_until([](char c) { return c == '"'; }) : llvm::StringRef();
}

template <class Visit> void forEachLine(llvm::StringRef text, Visit visit) {
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    text = rest;
    visit(line);
  }
}

/// Returns the names of a source's headers that depend on its mod or its configuration. Included headers come first.
std::set<std::string> ofStage(const KernelSource& source) {
  std::set<std::string> names{kMod.str(), kConfig.str()};
  for (const auto& [name, body] : source.headers)
    forEachLine(body, [&, name = name](llvm::StringRef line) {
      if (names.count(included(line).str())) names.insert(name);
    });
  return names;
}

/// Returns a header as it is written: the contract is for authors of kernels, and a mod has lines of its own.
std::string written(const std::string& name, llvm::StringRef body) {
  std::string text = "// ===== " + name + "\n";
  if (name == kContract)
    while (std::string_view(body).substr(0, 2) == "//") body = body.split('\n').second;
  text += withoutIncludes(body);
  if (name == kMod && body.contains("#line ")) text += std::string(kOwnLine) + "\n";
  return text;
}

/// Makes the names of shared namespaces known in the namespaces of a stage.
std::string usings(llvm::StringRef shared, const std::string& space, const std::string& stage) {
  std::set<std::string> paths{""};
  forEachLine(shared, [&](llvm::StringRef line) {
    if (line.consume_front("namespace " + space) && line.consume_back(" {") && (line.empty() || line[0] == ':'))
      paths.insert(line.str());
  });
  std::string text;
  for (const std::string& path : paths)
    text += fmt::format("namespace {0}{1} {{ using namespace {2}{1}; }}\n", stage, path, space);
  return text;
}

/// Returns a text in which a name has something behind it. Longer names stay.
std::string withSuffix(const std::string& text, const std::string& name, const std::string& suffix) {
  return std::regex_replace(text, std::regex("\\b" + name + "\\b"), name + suffix);
}

bool isSameKernel(const KernelSource& a, const KernelSource& b) { return a.text == b.text && a.headers == b.headers; }

/// Returns the kernel's name with its namespaces. `text`: of the template.
std::string qualified(llvm::StringRef text, const std::string& entry, const std::string& space) {
  std::string path = space;
  forEachLine(text.take_front(text.find(entry + "(const __grid_constant__")), [&](llvm::StringRef line) {
    if (line.consume_front("namespace attnc") && line.consume_back(" {")) path = space + line.str();
  });
  return path + "::" + entry;
}

/// Removes C names of kernels, or of variables, for which nvcc has none in a namespace.
std::string withoutC(std::string text, const std::string& space) {
  for (size_t at; (at = text.find("extern \"C\" " + space)) != std::string::npos;) text.erase(at, 11);
  return text;
}

} // namespace

std::string inNamespace(const std::string& text, const std::string& space) {
  if (space == "attnc") return text;
  static const std::regex names(R"(\battnc(::)|(namespace )attnc\b)");
  return std::regex_replace(text, names, "$2" + space + "$1");
}

std::string withoutIncludes(llvm::StringRef text) {
  std::string out;
  forEachLine(text, [&](llvm::StringRef line) {
    if (included(line).empty() && line.trim() != "#pragma once") out += line.str() + "\n";
  });
  return out;
}

void nameApart(std::vector<KernelSource>& stages) {
  const std::vector<KernelSource> given = stages;
  for (size_t i = 0; i < given.size(); ++i) {
    const KernelSource& own = given[i];
    const bool isShared = llvm::any_of(
        given, [&](const KernelSource& other) { return other.entry == own.entry && !isSameKernel(other, own); });
    if (!isShared) continue;
    const auto first = llvm::find_if(given, [&](const KernelSource& other) { return isSameKernel(other, own); });
    const std::string suffix = fmt::format("_launch{}", first - given.begin() + 1);
    stages[i].text = withSuffix(own.text, own.entry, suffix);
    stages[i].entry += suffix;
  }
}

JoinedStages joined(llvm::ArrayRef<KernelSource> stages, const std::string& space) {
  JoinedStages result;
  std::map<std::string, std::string> texts; // of stages -> their namespaces: equal stages are written once
  std::set<std::string> shared;
  std::string common, own;
  for (const KernelSource& source : stages) {
    const std::set<std::string> varying = ofStage(source);
    std::string text;
    for (const auto& [name, body] : source.headers) {
      if (varying.count(name) && stages.size() > 1)
        text += (name == kConfig ? kNoLists.str() : "") + written(name, body);
      else if (shared.insert(name).second)
        common += written(name, body);
    }
    text += written(source.templateName, source.text);
    const auto [found, isNew] =
        texts.try_emplace(text, stages.size() > 1 ? fmt::format("{}_stage{}", space, texts.size() + 1) : space);
    const std::string& inside = found->second;
    result.kernels.push_back(qualified(source.text, source.entry, inside));
    if (!isNew) continue;
    if (stages.size() > 1) own += "@" + inside + "\n"; // the common text may still grow
    // Stages align dynamic shared memory differently, so each has a name of its own for it.
    own += inNamespace(stages.size() > 1 ? withSuffix(text, "dynamic_shared", fmt::to_string(texts.size())) : text,
                       inside);
  }
  common = inNamespace(common, space);
  result.text = common;
  forEachLine(own, [&](llvm::StringRef line) {
    if (line.consume_front("@"))
      result.text += usings(common, space, line.str());
    else
      result.text += line.str() + "\n";
  });
  result.text = withoutC(std::move(result.text), "__device__");
  if (space != "attnc") result.text = withoutC(std::move(result.text), "__global__");
  return result;
}

std::string withOwnLines(const std::string& text, const std::string& file) {
  std::string out;
  int number = 0;
  forEachLine(text, [&](llvm::StringRef line) {
    ++number;
    out += line == kOwnLine ? fmt::format("#line {} \"{}\"\n", number + 1, file) : line.str() + "\n";
  });
  return out;
}

} // namespace attnc
