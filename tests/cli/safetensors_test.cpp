#include "command.h"
#include "problem/safetensors.h"

#include "helpers/cpu_time.h"
#include "helpers/take.h"
#include "output_file.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <sstream>

using namespace attnc;
using namespace attnc::cli;
using namespace attnc::test;

namespace {

/// A file with this header (its length in front) and this many bytes of data.
std::string fileOf(const std::string& header, size_t dataBytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += char(header.size() >> (8 * i) & 0xff);
  return file + header + std::string(dataBytes, '\1');
}

Expected<NamedTensors> parse(const std::string& file, const Wanted& wanted = wantAll) {
  std::istringstream stream(file);
  auto read = readSafetensors(stream, file.size(), "input.safetensors", wanted);
  if (!read) return std::move(read).error();
  return std::move(read->tensors);
}

/// A header of many tensors without elements.
std::string largeHeader(int tensors) {
  std::string header = "{";
  for (int i = 0; i < tensors; ++i)
    header += fmt::format(R"({}"model.layers.{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", i ? "," : "", i);
  return header + "}";
}

NamedTensors sample() {
  NamedTensors tensors;
  const DType dtypes[] = {DType::Bool, DType::U8,  DType::I8,   DType::I16, DType::I32,
                          DType::I64,  DType::F16, DType::BF16, DType::F32};
  for (DType dtype : dtypes) {
    HostTensor& tensor = tensors[std::string(dtypeName(dtype))] = HostTensor::make(dtype, {2, 3});
    for (size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = char(dtype == DType::Bool ? i & 1 : i * 37);
  }
  tensors["scalar"] = HostTensor::make(DType::F32, {});
  tensors["empty"] = HostTensor::make(DType::I64, {4, 0, 7});
  tensors["a \"quoted\"\n\xc3\xa9 name"] = HostTensor::make(DType::U8, {5});
  return tensors;
}

} // namespace

TEST_CASE("what is written is read back") {
  Folder folder;
  std::string path = folder / "a.safetensors";
  NamedTensors tensors = sample();
  REQUIRE(writeSafetensors(path, tensors, {{"made by", "a test"}}));
  auto read = take(readSafetensors(path));
  REQUIRE(read.tensors.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    const HostTensor& back = read.tensors.at(name);
    CHECK(back.dtype == tensor.dtype);
    CHECK(back.shape == tensor.shape);
    CHECK(back.bytes == tensor.bytes);
  }
  CHECK(folder.files() == 1);
}

TEST_CASE("the data section is aligned for every element type") {
  Folder folder;
  std::string path = folder / "a.safetensors";
  REQUIRE(writeSafetensors(path, sample()));
  uint64_t header = 0;
  std::memcpy(&header, readFile(path).data(), sizeof(header));
  CHECK(header % 8 == 0);
}

TEST_CASE("a file cut at any byte is refused, and inside the data the tensor is named") {
  Folder folder;
  std::string path = folder / "a.safetensors";
  NamedTensors tensors;
  tensors["query"] = HostTensor::make(DType::F32, {3, 2});
  tensors["keys"] = HostTensor::make(DType::BF16, {4});
  REQUIRE(writeSafetensors(path, tensors));
  std::string whole = readFile(path);
  REQUIRE(parse(whole));
  size_t data = whole.size() - 24 - 8;
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO("cut at " << size);
    const Error result = refusalOf(parse(whole.substr(0, size)));
    CHECK(result.blame == Blame::Environment);
    const std::string& message = result.message;
    CHECK(message.find("input.safetensors") != std::string::npos);
    if (size < data) continue;
    CHECK(message.find("truncated") != std::string::npos);
    CHECK(message.find(size < data + 24 ? "'query'" : "'keys'") != std::string::npos);
  }
}

TEST_CASE("malformed files are refused with a message that says why") {
  struct Row {
    const char* header;
    size_t data;
    const char* message;
  };
  const Row rows[] = {
      {"", 0, "not a JSON object"},
      {"[]", 0, "not a JSON object"},
      {"{", 0, "not valid JSON"},
      {"{}x", 0, "not valid JSON"},
      {"{\"\xff\":{}}", 0, "not valid JSON"},
      {R"({"q":1})", 0, "tensor 'q': its header entry is not a JSON object"},
      {R"({"q":{}})", 0, "tensor 'q': no dtype"},
      {R"({"q":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'q': no dtype"},
      {R"({"q":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, "tensor 'q': dtype 'F64' is not supported"},
      {R"({"q":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'q': dtype 'f32'"},
      {R"({"q":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor 'q': no shape"},
      {R"({"q":{"dtype":"F32","shape":4,"data_offsets":[0,4]}})", 4, "tensor 'q': no shape"},
      {R"({"q":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "tensor 'q': an extent"},
      {R"({"q":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "tensor 'q': an extent"},
      {R"({"q":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "tensor 'q': an extent"},
      {R"({"q":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "nested too deeply"},
      {R"({"q":{"dtype":"F32","shape":{"a":1},"data_offsets":[0,4]}})", 4, "nested too deeply"},
      {R"({"q":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'q': no dtype"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":true}})", 4, "tensor 'q': no pair"},
      {R"({"q":{"dtype":"F8","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4, "beyond the end of any file"},
      {R"({"q":{"dtype":"F32","shape":[1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4, "tensor 'q': 7 dimensions"},
      {R"({"q":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4, "tensor 'q': an extent"},
      {R"({"q":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "tensor 'q': its shape"},
      {R"({"q":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "tensor 'q': its shape"},
      {R"({"q":{"dtype":"F32","shape":[0,9223372036854775807,9],"data_offsets":[0,0]}})", 0, "tensor 'q': its shape"},
      {R"({"q":{"dtype":"F32","shape":[70368744177664],"data_offsets":[0,281474976710656]}})", 4,
       "tensor 'q': truncated"},
      {R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "tensor 'q': 4 bytes of data"},
      {R"({"q":{"dtype":"F32","shape":[1]}})", 4, "tensor 'q': no pair of data_offsets"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "tensor 'q': no pair"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "tensor 'q': no pair"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", 4, "tensor 'q': its data_offsets run backwards"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "tensor 'q': 4 unused bytes"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "tensor 'q': truncated"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 9, "5 bytes after the last tensor"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4, "tensor 'q': unknown field 'more'"},
      {R"({"q":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},"q":{}})", 2, "the key 'q' twice"},
      {R"({"q":{"dtype":"U8","dtype":"I8","shape":[2],"data_offsets":[0,2]}})", 2, "the key 'dtype' twice"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6, "tensor 'b': its data overlaps"},
      {R"({"__metadata__":{"format":1}})", 0, "__metadata__: 'format' is not a string"},
      {R"({"__metadata__":[]})", 0, "__metadata__ is not"},
      {"{\"a\x7f"
       "b\":1}",
       0, "tensor 'a\\x7fb'"},
  };
  for (const Row& row : rows) {
    INFO(row.header);
    CHECK_THAT(environmentErrorOf(parse(fileOf(row.header, row.data))), Catch::Contains(row.message));
  }
}

TEST_CASE("lying header lengths allocate nothing") {
  for (uint64_t length : {uint64_t(1) << 63, ~uint64_t(0), uint64_t(20'000'000), uint64_t(9)}) {
    std::string file(16, '{');
    std::memcpy(file.data(), &length, sizeof(length));
    CHECK_FALSE(parse(file));
  }
}

TEST_CASE("deeply nested headers end in a message") {
  for (const char* open : {"[", "{\"shape\":", "{\"__metadata__\":"}) {
    std::string header = "{\"q\":{\"shape\":";
    for (int i = 0; i < 1'000'000; ++i) header += open;
    CHECK_THAT(refusalOf(parse(fileOf(header, 0))).message, Catch::Contains("nested too deeply"));
  }
}

TEST_CASE("the time for a header grows with its length, not with the square of it") {
  auto read = [](int tensors) {
    return [file = fileOf(largeHeader(tensors), 0), tensors] {
      auto result = take(parse(file));
      REQUIRE(result.size() == size_t(tensors));
    };
  };
  CHECK(test::cpuSeconds(read(32'000)) < 24 * test::cpuSeconds(read(4'000)));
}

TEST_CASE("tensors that nobody wants are passed over at once") {
  struct Counting : std::stringbuf {
    using std::stringbuf::stringbuf;
    int seeks = 0;
    pos_type seekoff(off_type by, std::ios_base::seekdir from, std::ios_base::openmode which) override {
      ++seeks;
      return std::stringbuf::seekoff(by, from, which);
    }
  };
  const auto seeks = [](int tensors) {
    std::string header = R"({"first":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
    for (int i = 1; i <= tensors; ++i)
      header += fmt::format(R"(,"layer.{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i, i, i + 1);
    const std::string file =
        fileOf(header + fmt::format(R"(,"q":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}}}})", tensors + 1,
                                    tensors + 2),
               size_t(tensors) + 1) +
        "\7";
    Counting buffer(file);
    std::istream stream(&buffer);
    auto read = readSafetensors(stream, file.size(), "input.safetensors", [](const std::string& name) {
      return name == "q" || name == "first" ? Want::Data : Want::Nothing;
    });
    REQUIRE(read);
    CHECK(read->tensors.at("first").bytes == std::vector<char>{1});
    CHECK(read->tensors.at("q").bytes == std::vector<char>{7});
    return buffer.seeks;
  };
  CHECK(seeks(200) == seeks(100));
}

TEST_CASE("only what is wanted is read, and may be of a kind that attnc does not know") {
  const std::string file = fileOf(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                                  R"("b":{"dtype":"U8","shape":[2],"data_offsets":[8,10]},)"
                                  R"("c":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[10,11]},)"
                                  R"("d":{"dtype":"BOOL","shape":[1],"data_offsets":[11,12]}})",
                                  11) +
                           "\2";
  auto some = [](const std::string& name) {
    return name == "b" ? Want::Data : name == "d" ? Want::Shape : Want::Nothing;
  };
  std::istringstream seekable(file), pipe(file);
  for (auto [stream, size] :
       {std::pair(&seekable, std::optional<uint64_t>(file.size())), std::pair(&pipe, std::optional<uint64_t>())}) {
    auto result = take(readSafetensors(*stream, size, "input.safetensors", some));
    CHECK(result.names == std::vector<std::string>{"a", "b", "c", "d"});
    REQUIRE(result.tensors.size() == 2);
    CHECK(result.tensors["b"].bytes == std::vector<char>{1, 1});
    CHECK(result.tensors["d"].shape == std::vector<int64_t>{1});
    CHECK(result.tensors["d"].bytes.empty());
  }
  auto wants = [](const char* wanted) {
    return [wanted](const std::string& name) { return name == wanted ? Want::Data : Want::Nothing; };
  };
  CHECK_THAT(parse(file, wants("a")).error().message,
             Catch::Contains("tensor 'a': dtype 'F64' is not supported (F32, F16, BF16, F8_E4M3, "));
  CHECK_THAT(parse(file, wants("c")).error().message, Catch::Contains("tensor 'c': 8 dimensions"));
  CHECK_THAT(parse(file, wants("d")).error().message, Catch::Contains("tensor 'd': a BOOL"));
}

TEST_CASE("a stream whose length is not known is read to its end, and cut ones are refused") {
  const std::string whole = fileOf(R"({"q":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                   R"("r":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                                   5);
  auto read = [](const std::string& file, const Wanted& wanted) {
    std::istringstream stream(file);
    return readSafetensors(stream, std::nullopt, "<stdin>", wanted);
  };
  auto nothing = [](const std::string&) { return Want::Nothing; };
  for (const Wanted& wanted : {Wanted(wantAll), Wanted(nothing)}) {
    CHECK(read(whole, wanted));
    for (size_t size = 0; size < whole.size(); ++size) {
      INFO("cut at " << size);
      const Error result = refusalOf(read(whole.substr(0, size), wanted));
      if (size < whole.size() - 5) continue;
      CHECK_THAT(result.message,
                 Catch::Contains("truncated") && Catch::Contains(size < whole.size() - 2 ? "'q'" : "'r'"));
    }
    CHECK_THAT(refusalOf(read(whole + "x", wanted)).message, Catch::Contains("bytes after the last tensor"));
  }
}

TEST_CASE("padding and metadata are legal") {
  auto result =
      parse(fileOf(R"({"__metadata__":{"format":"pt"},"q":{"shape":[],"data_offsets":[0,4],"dtype":"F32"}}  )", 4));
  REQUIRE(result);
  CHECK(result->at("q").shape.empty());
  CHECK(result->size() == 1);
  CHECK(parse(fileOf("{}", 0)));
}

TEST_CASE("a boolean is 0 or 1") {
  std::string file = fileOf(R"({"q":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  CHECK(parse(file));
  file.back() = '\2';
  CHECK_THAT(refusalOf(parse(file)).message, Catch::Contains("tensor 'q'"));
}

TEST_CASE("a folder, a device and a file that is missing are refused") {
  Folder folder;
  CHECK_FALSE(readSafetensors(folder / "."));
  CHECK_FALSE(readSafetensors("/dev/zero"));
  CHECK_THAT(refusalOf(readSafetensors(folder / "none")).message, Catch::Contains("No such file"));
}

TEST_CASE("a file is replaced whole, keeping links, permissions and neighbours") {
  Folder folder;
  std::string path = folder / "out", link = folder / "link";
  REQUIRE(writeWholeFile(path, {"one"}));
  std::filesystem::permissions(path, std::filesystem::perms(0640));
  std::filesystem::create_symlink("out", link);
  REQUIRE(writeWholeFile(link, {"two", "", " three"}));
  CHECK(readFile(path) == "two three");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(std::filesystem::status(path).permissions() == std::filesystem::perms(0640));
  CHECK(folder.files() == 2);

  REQUIRE(writeWholeFile("/dev/null", {"gone"}));
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK_FALSE(writeWholeFile(folder / ".", {"x"}));
  CHECK_FALSE(writeWholeFile(folder / "no/such/folder", {"x"}));
  CHECK_FALSE(writeWholeFile(folder / std::string(300, 'x'), {"x"}));
  CHECK_THAT(refusalOf(writeWholeFile("/dev/full", {"x"})).message, Catch::Contains("/dev/full"));
}
