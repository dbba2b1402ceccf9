// Parameters of decode kernels.
//
// Host code, compiled twice: with the library (src/plan), and as text in the launcher of an emitted kernel. There,
// host/types.h stands for the library's types. So it names only members that both have, and includes nothing.
#pragma once

namespace attnc::plan {

Divisor divisorOf(int64_t divisor) {
  const uint64_t d = uint64_t(std::max<int64_t>(divisor, 1));
  const unsigned shift = unsigned(std::bit_width(d - 1)); // log2, rounded up
  return {int(d), unsigned((uint64_t(1) << 32) * ((uint64_t(1) << shift) - d) / d + 1), shift};
}

static PackedParams packedParams(const Stage& stage, const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  const int64_t heads = (operands.cuSeqlensQ ? 1 : problem.batch) * problem.kvHeads;
  return {forwardParams(operands), divisorOf(problem.kvHeads ? problem.qHeads / problem.kvHeads : 1),
          divisorOf(heads ? packedTiles(operands, stage.config.blockM) / heads : 1), divisorOf(problem.kvHeads)};
}

/// Per item: how many steps are live, their indices, and the words that mark them.
static constexpr int64_t kIntsOfWord = 32 + 1;
static size_t listBytes(const LaunchOperands& operands, int rows, int columns) {
  return sizeof(int) * size_t(packedTiles(operands, rows) * (1 + stepWords(operands, columns) * kIntsOfWord));
}

static DecodeListsParams listsOf(const Stage& stage, const LaunchOperands& operands, const WorkspaceView& workspace) {
  const int64_t items = packedTiles(operands, stage.config.blockM);
  DecodeListsParams lists{};
  lists.words_of_item = int(stepWords(operands, stage.config.blockN));
  lists.arrived = static_cast<int*>(workspace.at(Use::Counters)) + items;
  lists.count = static_cast<int*>(workspace.at(Use::StepLists));
  lists.index = lists.count + items;
  lists.words = reinterpret_cast<unsigned*>(lists.index + items * lists.words_of_item * 32);
  return lists;
}

int64_t partRows(const LaunchOperands& operands, int rows) {
  const ProblemShape& problem = operands.problem;
  return problem.kvHeads ? std::min<int64_t>(problem.qLen * (problem.qHeads / problem.kvHeads), rows) : 0;
}

/// Two parts per CTA: O, then states.
static size_t partBytes(const LaunchOperands& operands, int rows) {
  return sizeof(float) * size_t(2 * mostParts(operands, rows) * partRows(operands, rows) * (operands.v.shape[3] + 4));
}

/// One CTA per 32 steps along KV of each tile of packed rows.
static int64_t perStepWord(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return packedTiles(operands, stage.config.blockM) * stepWords(operands, stage.config.blockN);
}

/// Returns the bytes of `counters` counters per item.
static size_t counterBytes(const LaunchOperands& operands, int rows, int counters) {
  return sizeof(int) * size_t(packedTiles(operands, rows) * counters);
}

/// Returns the CTAs of a decode kernel. `atOnce`: how many a multiprocessor runs at once.
static int64_t ctasOfParts(int64_t atOnce, const Stage& stage, const LaunchOperands& operands, const Device& device) {
  return std::min(mostParts(operands, stage.config.blockM), device.multiprocessors * atOnce);
}

/// Returns the parameters of the stage that lists the live steps.
static DecodeListsParams decodeListsParams(const Stage& stage, const LaunchOperands& operands,
                                           const WorkspaceView& workspace) {
  DecodeListsParams params = listsOf(stage, operands, workspace);
  params.forward = packedParams(stage, operands);
  return params;
}

/// Returns how many teams of CTAs deal items, each for a tile of a head: one, unless they leave few CTAs idle.
int64_t decodeTeams(const Stage& stage, const LaunchOperands& operands, int64_t ctas) {
  const ProblemShape& problem = operands.problem;
  const int64_t heads = problem.batch * problem.kvHeads;
  const int64_t tiles = heads ? packedTiles(operands, stage.config.blockM) / heads : 0;
  return operands.cuSeqlensQ || tiles < 2 || tiles > ctas / 2 || ctas % tiles > ctas / 16 ? 1 : tiles;
}

/// Returns what DecodeDealer of templates/algo/decode_work.cuh would find if all items have one length.
static EqualItems equalItems(const Stage& stage, const LaunchOperands& operands, int64_t ctas, int64_t teams) {
  ctas /= teams;
  const int64_t items = packedTiles(operands, stage.config.blockM) / teams, most = items ? ctas / items : 0;
  const int64_t length = std::max<int64_t>(ceilDiv(operands.problem.kvLen, stage.config.blockN), 1);
  const int64_t piece = most ? ceilDiv(length, most) : 0; // most steps of a piece; 0: more items than CTAs
  const int64_t steps = items * length, shares = std::max<int64_t>(std::min(ctas, steps), 1), each = steps / shares;
  const bool inPieces = piece && piece <= each + kStepsOfEnd;
  return {divisorOf(inPieces ? ceilDiv(length, piece) : length), divisorOf(each), divisorOf(each + 1),
          int(steps % shares), inPieces};
}

DecodeParams decodeParams(const Stage& stage, const LaunchOperands& operands, const Device& device,
                          const WorkspaceView& workspace, int64_t teams) {
  DecodeParams params{};
  params.forward = packedParams(stage, operands);
  params.part_rows = int(partRows(operands, stage.config.blockM));
  params.arrived = static_cast<int*>(workspace.at(Use::Counters));
  // Steps of all tiles are dealt by a 32-bit number. If they do not fit, the tiles suffice to keep a GPU busy.
  const int64_t steps =
      packedTiles(operands, stage.config.blockM) * (32 * stepWords(operands, stage.config.blockN) + 1);
  if (steps <= kMostTiles) params.part_out = static_cast<float*>(workspace.at(Use::Parts));
  params.k_scale = scalesOf(operands.kScales);
  params.v_scale = scalesOf(operands.vScales);
  const int64_t ctas = ctasOf(stage, operands, device);
  if (workspace.at(Use::StepLists)) {
    const DecodeListsParams lists = listsOf(stage, operands, workspace);
    const int64_t tiles = operands.problem.kvHeads ? packedTiles(operands, stage.config.blockM) /
                                                         (operands.problem.batch * operands.problem.kvHeads)
                                                   : 0;
    BlockLists& steps = params.forward.lists;
    steps.partial_count = lists.count;
    steps.partial_index = lists.index;
    steps.batch_stride = operands.problem.kvHeads * tiles;
    steps.head_stride = tiles;
    steps.index_stride = lists.words_of_item * 32;
    steps.q_block = stage.config.blockM;
    steps.kv_block = stage.config.blockN;
  }
  if (params.part_out) params.equal = equalItems(stage, operands, ctas, teams);
  if (params.part_out) params.part_state = params.part_out + 2 * ctas * params.part_rows * operands.v.shape[3];
  return params;
}

} // namespace attnc::plan
