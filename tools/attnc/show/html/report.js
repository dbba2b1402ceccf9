// The rest of the page: figures, resources, reasons; and following a file.

function captureText(capture) {
  return capture.name + ': ' + (capture.kind === 'tensor' ? capture.dtype + '[' + capture.shape.join(', ') + ']' : capture.kind);
}

function problemText(problem) {
  return ['B', 'H', 'HKV', 'Q_LEN', 'KV_LEN'].map(name => name + ' ' + problem[name]).join(', ');
}

function addHead(page) {
  const head = document.getElementById('head'), kernel = page.kernel, name = page.title || 'a mod';
  document.title = name + ' · attnc';
  head.replaceChildren(make('h1', {}, name));
  if (!kernel) return;
  const {kernel: it, problem} = kernel, values = Object.entries(kernel.values).map(([key, value]) => key + ' = ' + value).join(', ');
  head.append(make('p', {class: 'sub'}, it.kind + ' kernel, family ' + it.family + ' for ' + it.arch + ', ' + it.dtype
    + (it.kvDtype === it.dtype ? '' : ' with k and v of ' + it.kvDtype) + ', head dim ' + it.headDim
    + (it.headDimV === it.headDim ? '' : ' and ' + it.headDimV) + ' · ' + problemText(problem) + (values ? ' · ' + values : '')));
  const figures = make('div', {class: 'figures'});
  const add = (value, words, title) => figures.append(make('div', {class: 'figure', title: title || ''}, make('b', {}, value), make('span', {}, words)));
  add(percent(kernel.flops.live, kernel.flops.dense), 'of the FLOPs of dense attention are left: ' + flops(kernel.flops.live) + ' of ' + flops(kernel.flops.dense));
  const cost = kernel.perScore, all = kernel.operations.score_mod;
  add(String(cost.full), 'operations per score of a full block' + (all && all.element > cost.full ? '; score_mod has ' + all.element + ' in its text' : ''));
  add(kernel.tile.tile || '-', 'tile: ' + (kernel.boxes ? 'boxes of queries and of keys' : 'rows of q × columns of kv × warps') + '; from ' + {model: 'the model', tuned: 'tuning', asked: 'the options'}[kernel.tile.from]);
  for (const time of kernel.times)
    add(time.ms.toPrecision(3) + ' ms', 'predicted on ' + time.gpu + ' ' + time.clock + '; median error ' + time.medianError + ' %, worst ' + time.worstError + ' %');
  const launch = heaviest(it);
  add(String(launch.registers), 'registers a thread; ' + (launch.spillBytes ? number(launch.spillBytes) + ' bytes spilled' : 'nothing spilled'));
  if (kernel.work && kernel.work.mean)
    add((kernel.work.longest / kernel.work.mean).toFixed(2) + ' ×', 'the busiest multiprocessor against the mean: '
      + plural(kernel.work.tiles * kernel.work.heads, 'tile') + ' on ' + kernel.limits.multiprocessors + ' (' + kernel.limits.gpu + ')');
  head.append(figures);
}

/// Returns the launch whose CTAs hold most registers.
const heaviest = kernel => kernel.launches.reduce((a, b) => (b.registers * b.threads > a.registers * a.threads ? b : a));

function bar(words, value, most, told, hot) {
  const fill = make('i', {class: hot ? 'hot' : ''});
  fill.style.width = Math.min(100, 100 * value / Math.max(1, most)) + '%';
  return make('div', {class: 'bar'}, make('div', {class: 'words'}, make('span', {}, words), make('span', {}, told)), make('div', {class: 'track'}, fill));
}

function addResources(main, kernel) {
  const limits = kernel.limits, all = kernel.kernel.launches, launch = heaviest(kernel.kernel), file = launch.registers * launch.threads;
  const words = launch.tile ? ['tile ' + launch.tile.rows + (launch.tile.columns ? ' × ' + launch.tile.columns : '') + ', ' + plural(launch.warps, 'warp') + ' compute'] : [];
  if (launch.kvStages) words.push(launch.kvStages + ' slots of K and V' + (launch.qStages ? ', ' + launch.qStages + ' of Q' : ''));
  const children = [
    all.length > 1 ? make('p', {class: 'lead'}, 'The heaviest of ' + all.length + ' launches: ' + launch.entry) : null,
    bar('Registers of a thread', launch.registers, limits.registersPerThread, launch.registers + ' of ' + limits.registersPerThread, launch.spillBytes > 0),
    bar('Registers of a CTA', file, limits.registersPerMultiprocessor, number(file) + ' of ' + number(limits.registersPerMultiprocessor)),
    bar('Shared memory of a CTA', launch.sharedBytes, limits.sharedBytesPerCta, bytes(launch.sharedBytes) + ' of ' + bytes(limits.sharedBytesPerCta)),
    bar('Threads of a CTA', launch.threads, limits.threadsPerMultiprocessor, launch.threads + ' of ' + number(limits.threadsPerMultiprocessor)),
    make('p', {class: 'lead' + (launch.spillBytes ? ' bad' : '')},
         [...words, launch.spillBytes ? number(launch.spillBytes) + ' bytes spilled' : 'no spills', ...launch.advisories].join('; ')),
    bar('FLOPs that the mask leaves', kernel.flops.live, kernel.flops.dense, flops(kernel.flops.live) + ' of ' + flops(kernel.flops.dense))];
  if (all.length > 1)
    children.push(make('table', {}, make('tr', {}, ['launch', 'registers', 'shared', 'threads', 'spilled'].map(word => make('th', {}, word))),
      all.map(one => make('tr', {}, [one.template, one.registers, bytes(one.sharedBytes), one.threads, one.spillBytes || '-'].map(text => make('td', {}, String(text)))))));
  main.append(section('Tile, registers, shared memory', 'Against the limits of ' + kernel.kernel.arch + '.', {class: 'derived'}, ...children));
}

function addReasons(main, page) {
  const {kernel, mod} = page, rows = [];
  const add = (title, ...words) => rows.push(make('tr', {}, make('th', {}, title), make('td', {}, ...words)));
  if (kernel) {
    add('family', kernel.kernel.family + (kernel.kernel.passedOver ? '. Passed over: ' + kernel.kernel.passedOver : ', the fastest one that takes this problem'));
    if (kernel.choice) add('kind', kernel.kernel.kind + ': ' + kernel.choice);
    if (kernel.kernel.lowRank) add('low rank', kernel.kernel.lowRank);
    add('KV loop', kLoops[kernel.kvLoop]);
    add('per score', plural(kernel.perScore.full, 'operation') + ' in a full block, ' + kernel.perScore.partial + ' in a partial one'
      + (kernel.perScore.gradient !== undefined ? ', ' + kernel.perScore.gradient + ' more for the gradient' : '') + (kernel.perScore.masksAllBlocks ? '; the mask is asked in every block' : ''));
    add('tile from', {model: 'the model of times', tuned: 'a stored measurement', asked: 'the options'}[kernel.tile.from] + (kernel.tile.tunedBy ? ': ' + kernel.tile.tunedBy : ''));
    if (kernel.workspaceBytes) add('workspace', bytes(kernel.workspaceBytes));
    const captures = kernel.captures.map(captureText);
    add('captures', captures.length ? captures.join(', ') : 'none');
    for (const sum of kernel.gradients)
      add('gradient', sum.capture + (sum.per ? ': one addition to memory per ' + sum.per : ': no gradient arrives'));
  }
  if (mod) {
    for (const condition of mod.conditions) add('condition', condition.words + (condition.line ? ' (line ' + condition.line + ')' : ''));
    for (const gather of mod.gathers)
      add('gather', make('span', {class: gather.proven ? 'good' : 'bad'}, gather.proven ? 'proven inside' : 'clamped'), ': ' + gather.capture + ' index ' + gather.index
        + (gather.line ? ' (line ' + gather.line + ')' : '') + ': ' + gather.why);
    for (const grid of mod.grids || []) add('grid', grid.extents.join(' × ') + (grid.before === '0' ? '' : ' behind ' + grid.before + ' tokens') + (grid.isDeclared ? '' : ', found in // and %'));
    for (const axis of (mod.box || {axes: []}).axes)
      add('box', make('span', {class: 'mono'}, 'k' + axis.axis + ': ' + (axis.begin === undefined ? 'all' : axis.begin + ' to before ' + axis.end)
        + (axis.step ? ', those that are ' + axis.phase + ' modulo ' + axis.step : '')));
    for (const warning of mod.warnings)
      add('warning', make('span', {class: 'bad'}, (warning.line ? 'line ' + warning.line + ': ' : '') + warning.message + (warning.hint ? '. ' + warning.hint : '')));
  }
  const isLeft = main.querySelectorAll('section:not(.wide)').length % 2 === 0; // and nothing would stand at its right
  if (rows.length) main.append(section('Why', 'What was chosen, what was passed over, and what is proven.', {class: isLeft ? 'derived wide' : 'derived'}, make('table', {}, ...rows)));
}

function showBanner(words, isQuiet) {
  const banner = document.getElementById('banner');
  banner.textContent = words;
  banner.hidden = !words;
  banner.className = isQuiet ? 'quiet' : '';
}

/// Draws the page again. Panes stay where they were scrolled to.
function show(page) {
  const scrolled = new Map([...document.querySelectorAll('.code')].map(pane => [pane.id, [pane.scrollTop, pane.scrollLeft]]));
  const main = make('main', {id: 'main'});
  pictures = [];
  document.body.classList.toggle('stale', Boolean(page.error && page.kernel));
  addHead(page);
  const addIr = addCode(main, page);
  if (page.kernel) addMap(main, page.kernel);
  if (page.live) addIr();
  if (page.kernel) {
    addImage(main, page.kernel);
    addWork(main, page.kernel);
    addResources(main, page.kernel);
  }
  addReasons(main, page);
  if (!page.live) addIr();
  main.append(make('footer', {}, 'Written by attnc ' + page.version + '. Operations are those of the IR; the compiler fuses some, and some take several instructions.'));
  document.getElementById('main').replaceWith(main);
  for (const [id, [top, left]] of scrolled) {
    const pane = document.getElementById(id);
    if (pane) { pane.scrollTop = top; pane.scrollLeft = left; }
  }
  for (const pane of document.querySelectorAll('#mod, #code')) {
    const first = pane.querySelector('.linked');
    if (first && !scrolled.has(pane.id)) pane.scrollTop = first.offsetTop - pane.offsetTop - 60;
  }
  redrawAll();
  if (!page.error) return showBanner('');
  const error = page.error.error;
  showBanner((error.diagnostics || []).map(found => 'line ' + found.line + ': ' + found.message + (found.hint ? '\nhint: ' + found.hint : '')).join('\n')
    || error.message + (error.hint ? '\nhint: ' + error.hint : ''));
}

/// Asks the server for a newer state, again and again.
async function follow(revision) {
  const wait = milliseconds => new Promise(done => setTimeout(done, milliseconds));
  for (let failures = 0;; await wait(failures ? 1000 : 300)) {
    if (document.hidden) continue;
    try {
      const reply = await fetch('state?have=' + revision, {cache: 'no-store'});
      if (reply.status === 200) {
        const page = await reply.json();
        revision = page.revision;
        show(page);
      } else if (failures) {
        location.reload();
        return;
      }
      failures = 0;
    } catch (error) {
      if (++failures === 2) showBanner('attnc serve has ended; this is what it showed last.', true);
    }
  }
}

{
  const page = JSON.parse(document.getElementById('data').textContent);
  show(page);
  if (page.live) follow(page.revision);
}
