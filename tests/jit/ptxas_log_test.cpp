#include "jit/ptxas_log.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::jit;

TEST_CASE("resources are read from a log of CUDA 13", "[jit]") {
  CompiledKernel result;
  readPtxasLog("ptxas info    : 0 bytes gmem, 24 bytes cmem[4]\n"
               "ptxas info    : (C7519) Potential Performance Loss: warpgroup.arrive is injected in function 'k'\n"
               "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
               "ptxas info    : Function properties for k\n"
               "ptxas         .     512 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads\n"
               "ptxas info    : Used 168 registers, used 1 barriers, 512 bytes cumulative stack size, 256 bytes smem\n"
               "ptxas info    : Function properties for helper\n"
               "ptxas         .     168 bytes stack frame, 100 bytes spill stores, 64 bytes spill loads\n"
               "ptxas info    : Compile time = 12.768 ms\n",
               result);
  CHECK(result.registers == 168);
  CHECK(result.stackBytes == 512 + 168);
  CHECK(result.spillBytes == 20 + 24 + 100 + 64);
  CHECK(result.staticSharedBytes == 256);
  REQUIRE(result.advisories.size() == 1);
  CHECK(result.advisories[0].find("C7519") != std::string::npos);
}

TEST_CASE("resources are read from a log of CUDA 12", "[jit]") {
  CompiledKernel result;
  readPtxasLog("ptxas info    : Function properties for k\n"
               "    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n"
               "ptxas info    : Used 10 registers, used 0 barriers, 1024 bytes smem, 368 bytes cmem[0]",
               result);
  CHECK(result.registers == 10);
  CHECK(result.stackBytes == 8);
  CHECK(result.spillBytes == 8);
  CHECK(result.staticSharedBytes == 1024);
}

TEST_CASE("only the advisories that mean slow code are kept", "[jit]") {
  CompiledKernel result;
  readPtxasLog("ptxas (C7504) setmaxnreg ignored\nx (C7509) y\nx (C7510) y\nx (C7520) y\nx (C7521) y\n(C", result);
  CHECK(result.advisories ==
        std::vector<std::string>{"ptxas (C7504) setmaxnreg ignored", "x (C7510) y", "x (C7520) y"});
}

TEST_CASE("a log without numbers gives zeros", "[jit]") {
  CompiledKernel result;
  result.registers = 5;
  result.advisories = {"old"};
  for (const char* log : {"", "\n\n", " registers", "-1 bytes", "Used many registers\n bytes smem", "\xff\xfe(C)"}) {
    readPtxasLog(log, result);
    CHECK(result.registers == 0);
    CHECK(result.staticSharedBytes == 0);
    CHECK(result.advisories.empty());
  }
}
