// Pictures of the page: the block map, the work of multiprocessors, boxes on an image.

/// Returns which launch order a tile has: its index among all tiles.
function launchIndex(work, head, tile) {
  const section = Math.floor(head / work.section), first = section * work.section;
  const heads = Math.min(work.section, work.heads - first);
  return first * work.tiles + (work.tiles - 1 - tile) * heads + (head - first);
}

/// Says who reads a block: text lines.
function readers(kernel, q, kv, b, h) {
  const launch = kernel.kernel.launches[0], problem = kernel.problem, lines = [];
  const group = problem.H / problem.HKV;
  if (launch.tile && kernel.kernel.kind === 'forward' && kernel.kvLoop !== 'boxes' && kernel.kvLoop !== 'boxMask') {
    const rows = launch.tile.rows, begin = kernel.work ? kernel.work.firstRow : 0;
    const first = Math.floor((q[0] - begin) / rows), last = Math.floor((Math.min(q[1], problem.Q_LEN) - 1 - begin) / rows);
    const steps = Math.ceil((kv[1] - kv[0]) / launch.tile.columns);
    lines.push((first === last ? 'Tile ' + number(first) : 'Tiles ' + number(first) + ' to ' + number(last)) + ' of each head, '
      + rows + ' rows of q; ' + plural(steps, 'step') + ' of ' + launch.tile.columns + ' columns.');
    const work = kernel.work;
    if (work && first === last) {
      const head = b * problem.H + h;
      lines.push('In head ' + h + ', the launch starts this tile as number ' + number(launchIndex(work, head, first) + 1)
        + ' of ' + number(work.tiles * work.heads) + '.');
    }
  } else if (launch.tile) {
    lines.push(kernel.boxes ? 'This kernel walks boxes of the grid, not these blocks: see the image.'
                            : 'This ' + kernel.kernel.kind + ' kernel divides its work in another way.');
  }
  if (group > 1) lines.push(number(group) + ' heads of q share these keys.');
  return lines;
}

/// The map of the blocks of the mask.
function addMap(main, kernel) {
  if (!kernel.maps || !kernel.maps.length) return;
  const problem = kernel.problem, blocks = kernel.blocks;
  let map = kernel.maps[0], at = null, canvas = null;
  const said = make('div', {class: 'said', id: 'said'});
  const rowsOf = () => map.cells.length, columnsOf = () => map.cells[0].length;
  const ratio = Math.min(1, Math.max(.12, problem.Q_LEN / Math.max(1, problem.KV_LEN)));

  function draw(context, width, height) {
    const rows = rowsOf(), columns = columnsOf(), w = width / columns, h = height / rows;
    const paint = Object.fromEntries(Object.entries(kVerdicts).map(([letter, [name]]) => [letter, colour(name)]));
    const gap = Math.min(w, h) >= 7 ? 1 : 0;
    map.cells.forEach((letters, row) => {
      const y = Math.round(row * h), tall = Math.max(1, Math.round((row + 1) * h) - y - gap);
      for (let column = 0; column < columns;) {
        let end = column + 1;
        if (!gap) while (end < columns && letters[end] === letters[column]) ++end;
        const x = Math.round(column * w);
        context.fillStyle = paint[letters[column]];
        context.fillRect(x, y, Math.max(1, Math.round(end * w) - x - gap), tall);
        column = end;
      }
    });
    if (!at) return;
    context.strokeStyle = colour('accent');
    context.lineWidth = 1;
    const tile = kernel.kernel.launches[0].tile;
    if (tile && kernel.work && kernel.kvLoop !== 'boxes') { // the rows of the tile that reads it
      const begin = kernel.work.firstRow, first = begin + Math.floor((at[0] * map.qStep - begin) / tile.rows) * tile.rows, tall = Math.max(tile.rows, map.qStep);
      context.strokeRect(.5, Math.round(first / map.qStep * h) + .5, width - 1, Math.max(2, Math.round(tall / map.qStep * h) - 1));
    }
    context.lineWidth = 2;
    context.strokeRect(Math.round(at[1] * w), Math.round(at[0] * h), Math.max(3, Math.round(w)), Math.max(3, Math.round(h)));
  }

  function tell() {
    if (!at) {
      said.replaceChildren(make('b', {}, 'Point at a block'), make('p', {}, 'It tells its verdict, its range of q and kv, and who '
        + 'reads it. Arrow keys move.'));
      return;
    }
    const [row, column] = at, [name, title, why] = kVerdicts[map.cells[row][column]];
    const range = (index, step, length) => [index * step, Math.min((index + 1) * step, length)];
    const q = range(row, map.qStep, problem.Q_LEN), kv = range(column, map.kvStep, problem.KV_LEN);
    const merged = map.qStep / blocks.qBlock * map.kvStep / blocks.kvBlock;
    const [b, h] = map.heads[0];
    fill(said,
      make('b', {class: 'legend'}, make('span', {}, swatch(name), title)), make('p', {}, why),
      make('p', {class: 'mono'}, 'q_idx  ' + q[0] + ' to ' + (q[1] - 1)), make('p', {class: 'mono'}, 'kv_idx ' + kv[0] + ' to ' + (kv[1] - 1)),
      merged > 1 ? make('p', {}, 'One cell is ' + number(merged) + ' blocks of ' + blocks.qBlock + ' × ' + blocks.kvBlock + '.') : null,
      ...readers(kernel, q, kv, b, h).map(line => make('p', {}, line)));
  }

  function move(cell) {
    at = cell;
    canvas.redraw();
    tell();
  }

  canvas = picture(0, ratio, 'Block map of the mask: ' + number(rowsOf()) + ' by ' + number(columnsOf()) + ' cells', draw, 760);
  canvas.tabIndex = 0;
  const cellOf = event => pointed(event, columnsOf(), rowsOf()).reverse();
  canvas.addEventListener('mousemove', event => move(cellOf(event)));
  canvas.addEventListener('click', event => move(cellOf(event)));
  canvas.addEventListener('keydown', event => {
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (!step) return;
    event.preventDefault();
    const from = at || [0, 0], clamp = (value, count) => Math.max(0, Math.min(count - 1, value));
    move([clamp(from[0] + step[0], rowsOf()), clamp(from[1] + step[1], columnsOf())]);
  });
  const middle = Math.floor(rowsOf() / 2), edge = map.cells[middle].lastIndexOf('p');
  at = [middle, edge < 0 ? Math.max(0, map.cells[middle].search(/[^e]/)) : edge];
  tell();

  const buttons = choice(kernel.maps, one => (blocks.batch > 1 ? 'batch ' + one.heads[0][0] + ', ' : '') + 'head ' + one.heads[0][1]
    + (one.heads.length > 1 ? ' and ' + (one.heads.length - 1) + ' more' : ''), one => { map = one; move(null); });
  const count = {f: blocks.full, p: blocks.partial, e: blocks.empty};
  const legend = Object.entries(kVerdicts).filter(([letter]) => kernel.maps.some(one => one.cells.some(row => row.includes(letter))));
  const about = blocks.isEstimate ? 'about ' : '';
  main.append(section('The mask', number(blocks.all) + ' blocks of ' + blocks.qBlock + ' × ' + blocks.kvBlock + '; '
    + (blocks.batch === 1 && blocks.heads === 1 ? 'the same in all batch entries and heads' : 'they differ by '
      + (blocks.batch > 1 ? 'batch entry' : '') + (blocks.batch > 1 && blocks.heads > 1 ? ' and ' : '') + (blocks.heads > 1 ? 'head' : '')) + '.',
    {class: 'derived'}, buttons,
    make('div', {class: 'mapbox'},
      make('div', {class: 'plot'},
        make('div', {class: 'axis'}, make('span', {}, '0'), make('span', {}, 'kv_idx →'), make('span', {}, number(problem.KV_LEN))),
        canvas, make('div', {class: 'axis'}, make('span', {}, 'q_idx ↓ ' + number(problem.Q_LEN)))),
      make('div', {}, said)),
    make('div', {class: 'legend'}, legend.map(([letter, [name, title]]) => make('span', {}, swatch(name),
      title.toLowerCase() + (letter in count ? ' ' + about + percent(count[letter], blocks.all) : ''))))));
}

/// Deals tiles to slots as TileWork does. Returns for each slot its tiles: [start, steps, head, tile].
function dealt(work, slots, qHeads) {
  const heap = Array.from({length: slots}, (_, i) => [0, i]); // ordered by time
  const before = (a, b) => a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]);
  const sink = () => {
    for (let i = 0;;) {
      let least = i;
      for (const child of [2 * i + 1, 2 * i + 2]) if (child < slots && before(heap[child], heap[least])) least = child;
      if (least === i) return;
      [heap[i], heap[least]] = [heap[least], heap[i]];
      i = least;
    }
  };
  const lanes = Array.from({length: slots}, () => []), atOnce = work.clusterCtas / work.clusterHeads;
  let index = 0;
  for (let first = 0; first < work.heads; first += work.section)
    for (let tile = (Math.ceil(work.tiles / atOnce) - 1) * atOnce; tile >= 0; tile -= atOnce)
      for (let head = first; head < Math.min(first + work.section, work.heads); head += work.clusterHeads, ++index) {
        const b = Math.floor(head / qHeads) % work.maskBatch, h = head % qHeads % work.maskHeads;
        const steps = work.steps[(b * work.maskHeads + h) * work.tiles + tile];
        if (work.clusterCtas > 1) { // in turns, each second round backwards
          const lane = lanes[Math.floor(index / slots) % 2 ? slots - 1 - index % slots : index % slots], end = lane.at(-1);
          lane.push([end ? end[0] + end[1] : 0, steps, head, tile]);
          continue;
        }
        lanes[heap[0][1]].push([heap[0][0], steps, head, tile]);
        heap[0][0] += steps;
        sink();
      }
  return lanes;
}

/// The tiles of a launch on the multiprocessors of a GPU.
function addWork(main, kernel) {
  const work = kernel.work, limits = kernel.limits;
  if (!work) return;
  const slots = Math.max(1, Math.floor(limits.multiprocessors * work.ctasPerMultiprocessor / work.clusterCtas));
  const most = Math.max(1, ...work.steps.slice(0, work.tiles));
  const children = [];
  if (work.tiles * work.heads <= 65536) {
    const lanes = dealt(work, slots, kernel.problem.H), tall = Math.max(1, Math.floor(264 / slots));
    const longest = Math.max(1, work.longest), height = Math.min(tall * slots, 400), lane = height / slots;
    const canvas = picture(height, 0, 'Tiles on multiprocessors over time', (context, width) => {
      context.fillStyle = colour('track');
      context.fillRect(0, 0, width, height);
      const paint = colour('bar');
      context.fillStyle = paint;
      lanes.forEach((tiles, slot) => {
        for (const [start, steps, , tile] of tiles) {
          const x = start / longest * width, w = steps / longest * width;
          context.globalAlpha = .35 + .65 * steps / most;
          context.fillRect(x, slot * lane, Math.max(.5, w - (w > 3 ? 1 : 0)), Math.max(.75, lane - (lane >= 2 ? .5 : 0)));
        }
      });
      context.globalAlpha = 1;
      context.fillStyle = colour('accent');
      context.fillRect(work.mean / longest * width - 1, 0, 2, height);
    });
    canvas.addEventListener('mousemove', event => {
      const box = canvas.getBoundingClientRect(), slot = pointed(event, 1, slots)[1];
      const time = (event.clientX - box.left) / box.width * longest;
      const found = lanes[slot].find(([start, steps]) => time >= start && time < start + steps);
      showTip(event, (work.clusterCtas > 1 ? 'cluster ' : 'multiprocessor ') + Math.floor(slot / work.ctasPerMultiprocessor)
        + (found ? '\nhead ' + found[2] + ', tile ' + found[3] + '\n' + plural(found[1], 'step') + ' along kv' : '\nidle'));
    });
    canvas.addEventListener('mouseleave', event => showTip(event, ''));
    children.push(make('div', {class: 'plot'}, canvas, make('div', {class: 'axis'}, make('span', {}, '0 steps'),
      make('span', {}, number(work.longest) + ' steps'))),
      make('div', {class: 'legend'}, make('span', {}, 'each line is ' + (work.clusterCtas > 1 ? 'a cluster of ' + work.clusterCtas + ' CTAs, each on ' : work.ctasPerMultiprocessor > 1 ? 'a CTA of ' + work.ctasPerMultiprocessor
        + ' on ' : '') + 'a multiprocessor; the red line is the mean; darker tiles have more steps')));
  }
  const bars = picture(72, 0, 'Steps of each tile of q', (context, width, height) => {
    const w = width / work.tiles;
    context.fillStyle = colour('bar');
    for (let tile = 0; tile < work.tiles; ++tile) {
      const tall = work.steps[tile] / most * height, x = tile * w;
      context.fillRect(x, height - tall, Math.max(.6, w - (w > 4 ? 1 : 0)), tall);
    }
  });
  bars.addEventListener('mousemove', event => {
    const [tile] = pointed(event, work.tiles, 1);
    showTip(event, 'tile ' + tile + ': ' + plural(work.steps[tile], 'step') + ' along kv');
  });
  bars.addEventListener('mouseleave', event => showTip(event, ''));
  children.push(make('p', {class: 'lead'}, 'Steps of the ' + plural(work.tiles, 'tile') + ' of a head, by position; at most ' + number(most) + '.'),
    make('div', {class: 'plot'}, bars));
  main.append(section('Work by multiprocessor', plural(work.tiles * work.heads, 'tile') + ' in launch order on ' + limits.multiprocessors
    + ' multiprocessors (' + limits.gpu + '), if every step takes the same time. The busiest has '
    + number(work.longest) + ' steps, the mean is ' + number(work.mean, 1) + ': ' + (work.mean ? (work.longest / work.mean).toFixed(2) : '1.00')
    + ' times.' + (work.isEstimate ? ' Some steps are unknown and counted.' : ''), {class: 'derived'}, ...children));
}

/// Boxes of queries and of keys on the image.
function addImage(main, kernel) {
  const boxes = kernel.boxes;
  if (!boxes || !boxes.ofFirstHead) return;
  const [depth, tall, wide] = boxes.queryGrid, [keyDepth, keyTall, keyWide] = boxes.keyGrid;
  const tiles = boxes.ofFirstHead;
  const middle = Math.floor(tiles.length / 2) + Math.floor(wide / boxes.queryBox[2] / 2), sees = tile => tile[1][2] < tile[2][2];
  let at = tiles.slice(middle).find(sees) || tiles.find(sees) || tiles[0];
  const said = make('div', {class: 'said'});
  const height = Math.max(tall, keyTall), width = Math.max(wide, keyWide);
  const canvas = picture(0, Math.min(1.2, Math.max(.05, height / width)), 'Boxes of queries and keys on the image', (context, w, h) => {
    const x = value => value / width * w, y = value => value / height * h;
    const rect = (box, fill, line, thick = 1) => {
      const [left, top, right, bottom] = [x(box[0]), y(box[1]), x(box[2]), y(box[3])];
      if (fill) { context.fillStyle = fill; context.fillRect(left, top, right - left, bottom - top); }
      if (line) { context.strokeStyle = line; context.lineWidth = thick; context.strokeRect(left, top, right - left, bottom - top); }
    };
    rect([0, 0, width, height], colour('empty'));
    const [query, begin, end] = at;
    for (const [origin] of tiles)
      if (origin[0] === query[0])
        rect([origin[2], origin[1], Math.min(origin[2] + boxes.queryBox[2], wide), Math.min(origin[1] + boxes.queryBox[1], tall)], '', colour('line'));
    context.globalAlpha = .45;
    for (let top = begin[1]; top < end[1]; top += boxes.keyBox[1]) // the steps
      for (let left = begin[2]; left < end[2]; left += boxes.keyBox[2])
        rect([left, top, Math.min(left + boxes.keyBox[2], keyWide), Math.min(top + boxes.keyBox[1], keyTall)], colour('partial'), colour('card'));
    context.globalAlpha = 1;
    rect([begin[2], begin[1], end[2], end[1]], '', colour('element'), 2);
    rect([query[2], query[1], Math.min(query[2] + boxes.queryBox[2], wide), Math.min(query[1] + boxes.queryBox[1], tall)], colour('full'), colour('card'));
  }, 620);
  const tell = () => {
    const [query, begin, end, steps] = at, names = ['z', 'y', 'x'].slice(depth > 1 || keyDepth > 1 ? 0 : 1), skip = 3 - names.length;
    const range = (from, to) => names.map((name, i) => name + ' ' + from[i + skip] + ' to ' + (to[i + skip] - 1)).join(', ');
    const keys = begin.reduce((product, value, i) => product * (end[i] - value), 1), read = steps * boxes.keyBox.reduce((a, b) => a * b, 1);
    said.replaceChildren(make('b', {}, 'A CTA and its keys'),
      make('p', {}, 'Queries: ' + range(query, query.map((value, i) => Math.min(value + boxes.queryBox[i], boxes.queryGrid[i]))) + '.'),
      make('p', {}, keys ? 'Keys that some of them see: ' + range(begin, end) + ', ' + number(keys) + ' in all.' : 'They see no key.'),
      make('p', {}, 'It reads ' + number(steps) + (steps === 1 ? ' box' : ' boxes') + ' of ' + boxes.keyBox.slice(skip).join(' × ') + ', ' + number(read) + ' keys.'),
      make('p', {}, percent(boxes.livePairs, boxes.pairs) + ' of the pairs that all CTAs compute are useful.'));
  };
  const choose = event => {
    const [col, row] = pointed(event, width, height);
    const found = tiles.find(([origin]) => origin[0] === at[0][0] && row >= origin[1] && row < origin[1] + boxes.queryBox[1]
      && col >= origin[2] && col < origin[2] + boxes.queryBox[2]);
    if (!found || found === at) return;
    at = found;
    canvas.redraw();
    tell();
  };
  canvas.addEventListener('mousemove', choose);
  canvas.addEventListener('click', choose);
  tell();
  const layers = [...new Set(tiles.map(([origin]) => origin[0]))];
  const slices = choice(layers, z => 'z ' + z, z => {
    at = tiles.find(([origin]) => origin[0] === z && origin[1] === at[0][1] && origin[2] === at[0][2]) || at;
    canvas.redraw();
    tell();
  }, layers.indexOf(at[0][0]));
  main.append(section('Boxes on the image', 'A grid of ' + (depth > 1 ? depth + ' × ' : '') + tall + ' × ' + wide
    + ' queries' + (boxes.differsByHead ? ', in head 0; other heads see other keys' : '') + '. Point at the image to move the CTA.', {class: 'derived'}, slices,
    make('div', {class: 'mapbox'}, make('div', {class: 'plot'}, canvas), make('div', {}, said)),
    make('div', {class: 'legend'}, make('span', {}, swatch('full'), 'queries of a CTA'), make('span', {}, swatch('partial'), 'boxes of keys that it reads'),
      make('span', {}, swatch('element'), 'keys that its queries see'))));
}
