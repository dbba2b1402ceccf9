// The page of `attnc explain --html` and `attnc serve`. Texts of mods are foreign: they become text nodes, never markup.
'use strict';

addEventListener('error', event => {
  const banner = document.getElementById('banner');
  banner.textContent = 'The page failed: ' + event.message;
  banner.hidden = false;
});

const kLevels = ['launch', 'head', 'row', 'column', 'element'];
const kPer = {launch: 'once a launch', head: 'per head', row: 'per q row', column: 'per kv column', element: 'per score'};
const kVerdicts = {
  e: ['empty', 'Empty', 'no score lives; the block is skipped'],
  p: ['partial', 'Partial', 'some scores live; each one is asked'],
  m: ['mixed', 'Mixed', 'several blocks: some are full, some are not'],
  f: ['full', 'Full', 'every score lives; the mask is not asked'],
  u: ['unknown', 'Unknown', 'too costly to decide here'],
};
const kLoops = {
  allTiles: 'all tiles of kv columns',
  bounds: 'tiles between the bounds that the mod computes; no block mask is built or read',
  blockMask: 'the lists of a block mask in device memory',
  listed: 'the live blocks, which each launch lists first',
  boxes: 'boxes of keys that queries see, which the mod computes',
  boxMask: 'the lists of a block mask, whose blocks are boxes',
};

/// Makes an element. `about`: class, and attributes. Children are elements or text.
function make(tag, about, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(about || {})) {
    if (name === 'class') element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== ''));
  return element;
}

/// Replaces what an element holds.
function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter(child => child !== null && child !== ''));
}

const number = (value, digits = 0) =>
  Number(value).toLocaleString('en-US', {maximumFractionDigits: digits, minimumFractionDigits: digits});
const percent = (part, whole, digits = 1) => (whole > 0 ? 100 * part / whole : 0).toFixed(digits) + ' %';
const plural = (count, word) => number(count) + ' ' + word + (count === 1 ? '' : 's');

function flops(value) {
  const units = ['MFLOP', 'GFLOP', 'TFLOP', 'PFLOP', 'EFLOP'];
  let unit = 0;
  value *= 1e-6;
  while (value >= 1000 && unit + 1 < units.length) { value *= 1e-3; ++unit; }
  return value.toFixed(2) + ' ' + units[unit];
}

function bytes(value) {
  if (value < 1024) return value + ' B';
  return value < 1048576 ? (value / 1024).toFixed(1) + ' KiB' : (value / 1048576).toFixed(1) + ' MiB';
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

function section(title, lead, about, ...children) {
  return make('section', about, make('h2', {}, title), lead ? make('p', {class: 'lead'}, lead) : null, ...children);
}

// --- A box that follows the pointer.

function showTip(event, text) {
  const tip = document.getElementById('tip');
  tip.textContent = text;
  tip.hidden = !text;
  if (!text) return;
  const right = innerWidth - tip.offsetWidth - 8, below = event.clientY + 18;
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, right)) + 'px';
  tip.style.top = (below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below) + 'px';
}

// --- Pictures on canvases. They are drawn again if their size or the colours change.

let pictures = [];

/// Makes a canvas of a height in pixels, or of that ratio of height to width. `draw(context, width, height)`.
function picture(height, ratio, label, draw, most = Infinity) {
  const canvas = make('canvas', {role: 'img', 'aria-label': label});
  canvas.redraw = () => {
    const width = Math.min(canvas.parentElement ? canvas.parentElement.clientWidth : 0, most);
    if (!width) return;
    const tall = ratio ? Math.round(width * ratio) : height, scale = devicePixelRatio || 1;
    canvas.style.width = width + 'px';
    canvas.style.height = tall + 'px';
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(tall * scale);
    const context = canvas.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    draw(context, width, tall);
  };
  pictures.push(canvas);
  return canvas;
}

/// Returns [column, row] of the cell of a canvas that the pointer is over, of so many columns and rows.
function pointed(event, columns, rows) {
  const box = event.target.getBoundingClientRect();
  const inside = (position, size, count) => Math.max(0, Math.min(count - 1, Math.floor(position / size * count)));
  return [inside(event.clientX - box.left, box.width, columns), inside(event.clientY - box.top, box.height, rows)];
}

/// Returns a square in a colour of the page.
function swatch(name) {
  const square = make('i');
  square.style.background = 'var(--' + name + ')';
  return square;
}

/// Returns a row of buttons, of which one is pressed; null for fewer than two. `words(item)`, `choose(item)`.
function choice(items, words, choose, pressed = 0) {
  if (items.length < 2) return null;
  const row = make('div', {class: 'buttons'}, items.map(item => make('button', {}, words(item))));
  const press = at => [...row.children].forEach((button, i) => button.setAttribute('aria-pressed', String(i === at)));
  items.forEach((item, i) => row.children[i].addEventListener('click', () => { press(i); choose(item); }));
  press(pressed);
  return row;
}

function redrawAll() {
  for (const canvas of pictures) canvas.redraw();
}
addEventListener('resize', redrawAll);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawAll);

// --- Texts of programs, with lines that belong to lines of the mod.

const kWords = {
  python: /^(and|as|assert|break|class|continue|def|elif|else|False|for|from|if|import|in|is|lambda|None|not|or|pass|return|True|while|with)$/,
  cuda: /^(auto|bool|const|constexpr|else|false|float|for|if|int|long|namespace|return|static|struct|template|true|typename|unsigned|using|void|ATTNC_DEVICE)$/,
  ir: /^(source|tensor|scalar|grid|output|i32|i64|f32|bool)$/,
};
const kTokens = {
  python: /("""|''')|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(#.*)|([A-Za-z_]\w*)|(\d[\w.]*)/g,
  cuda: /()("(?:[^"\\]|\\.)*")|(\/\/.*|#.*)|([A-Za-z_]\w*)|(\d[\w.]*)/g,
  ir: /()("(?:[^"\\]|\\.)*")|(![0-9]+$)|([A-Za-z_]\w*)|(%?\d[\w.]*)/g,
};

/// Returns lines of coloured spans.
function coloured(text, language) {
  let quotes = ''; // of the string that goes on over lines
  return text.replace(/\r?\n$/, '').split('\n').map(line => {
    const spans = [];
    const add = (words, kind) => { if (words) spans.push(kind ? make('span', {class: kind}, words) : words); };
    let at = 0;
    if (quotes) {
      const end = line.indexOf(quotes);
      at = end < 0 ? line.length : end + 3;
      add(line.slice(0, at), 'string');
      if (end >= 0) quotes = '';
    }
    const tokens = new RegExp(kTokens[language].source, 'g');
    tokens.lastIndex = at;
    for (let found; (found = tokens.exec(line));) {
      add(line.slice(at, found.index), '');
      at = tokens.lastIndex;
      if (found[1]) {
        const end = line.indexOf(found[1], at);
        if (end < 0) quotes = found[1];
        at = tokens.lastIndex = end < 0 ? line.length : end + 3;
        add(line.slice(found.index, at), 'string');
      } else {
        const isWord = found[4] && kWords[language].test(found[4]);
        add(found[0], found[2] ? 'string' : found[3] ? 'comment' : found[5] ? 'numeral' : isWord ? 'keyword' : '');
      }
    }
    add(line.slice(at), '');
    return spans;
  });
}

/// Marks what belongs to a line of the mod, in all panes. 0: nothing.
function markLine(line, source) {
  for (const row of document.querySelectorAll('.code .row.on')) row.classList.remove('on');
  if (!line) return;
  for (const row of document.querySelectorAll('.code .row[data-line="' + line + '"]')) {
    row.classList.add('on');
    const pane = row.closest('.code');
    if (pane === source || pane.dataset.shown) continue;
    pane.dataset.shown = '1'; // scrolls to the first one
    pane.scrollTop = row.offsetTop - pane.offsetTop - pane.clientHeight / 3;
  }
  for (const pane of document.querySelectorAll('.code')) delete pane.dataset.shown;
}

/// Makes a pane. `rows`: {spans, number, line, costs, wrong, note}. `line`: that of the mod, or 0. `costs`: cells between
/// number and text.
function codePane(id, rows, chosen, head) {
  const pane = make('div', {class: 'code', id, tabindex: '0'}, head || []);
  for (const {spans, number, line, costs, wrong, note} of rows) {
    const row = make('div', {class: 'row' + (line ? ' linked' : '') + (wrong ? ' wrong' : ''), 'data-line': line || 0},
                     make('span', {class: 'number'}, String(number)), costs || [], make('span', {class: 'text'}, spans));
    if (line) {
      row.addEventListener('mouseenter', () => markLine(line, pane));
      row.addEventListener('click', () => { markLine(line, pane); chosen(line); });
    }
    pane.append(row);
    if (note) pane.append(make('div', {class: 'note'}, note));
  }
  pane.addEventListener('mouseleave', () => markLine(0, pane));
  return pane;
}

function chip(level, words) {
  return make('span', {class: 'chip ' + (level === 'row' ? 'row_' : level), title: kPer[level]}, words);
}

/// Returns the operations of the mod by line.
function placesByLine(page) {
  const lines = new Map();
  const seen = new Set(); // an operation that both functions need is shown once
  for (const place of (page.kernel || page.mod || {}).places || []) {
    const key = [place.line, place.level, place.op, place.expression].join('\0');
    if (seen.has(key)) continue;
    seen.add(key);
    if (!lines.has(place.line)) lines.set(place.line, []);
    lines.get(place.line).push(place);
  }
  return lines;
}

const countOf = (places, level) =>
  places.filter(place => place.level === level).reduce((sum, place) => sum + (place.times || 1), 0);

/// Returns the cells of a line: how many operations it has at each level.
function costsOf(places, levels) {
  return levels.map(level => {
    const count = countOf(places, level);
    return make('span', {class: 'cost'}, count ? chip(level, count < 1000 ? String(count) : '…') : '');
  });
}

function operationsTable(line, places) {
  const several = new Set(places.map(place => place.function)).size > 1;
  return make('table', {}, places.map(place => make('tr', {}, make('td', {class: 'short'}, chip(place.level, kPer[place.level])),
    make('td', {class: 'mono'}, place.expression),
    make('td', {class: 'short'}, place.op + (place.times ? ' × ' + number(place.times) : '')),
    several ? make('td', {class: 'short'}, place.function) : null)));
}

/// Adds the panes of the mod, of its code and of its IR.
function addCode(main, page) {
  const places = placesByLine(page);
  const details = make('div', {class: 'details', id: 'operations'});
  const choose = line => details.replaceChildren(
    make('b', {}, 'Line ' + line), places.has(line) ? operationsTable(line, places.get(line)) : ' takes no operation of its own');
  const wrong = new Map();
  for (const found of (page.error && page.error.error.diagnostics) || []) {
    const words = found.message + (found.hint ? '\nhint: ' + found.hint : '');
    wrong.set(found.line, wrong.has(found.line) ? wrong.get(found.line) + '\n' + words : words);
  }
  const levels = kLevels.filter(level => [...places.values()].some(line => countOf(line, level)));
  const rows = coloured(page.text, 'python').map((spans, i) => ({
    spans, number: i + 1, line: places.has(i + 1) ? i + 1 : 0,
    costs: page.error ? [] : costsOf(places.get(i + 1) || [], levels), wrong: wrong.has(i + 1), note: wrong.get(i + 1)}));
  const weight = line => countOf(places.get(line), 'element') * 1e6 + places.get(line).length;
  const heaviest = [...places.keys()].filter(line => line > 0).sort((a, b) => weight(b) - weight(a))[0];
  if (heaviest) choose(heaviest);
  main.append(section('The mod', 'Each operation is computed once, at the outermost level that knows it; the counts say how many of a line. Point at a '
    + 'line to see its code; click it for its operations.', {}, codePane('mod', rows, choose),
    page.error ? null : make('div', {class: 'legend'}, levels.map(level => make('span', {}, chip(level, level), kPer[level]))),
    page.error ? null : details));
  if (page.code) {
    const lines = [];
    let of = 0, count = 0;
    const spans = coloured(page.code, 'cuda');
    page.code.split('\n').forEach((text, i) => {
      const directive = /^#line (\d+)/.exec(text);
      if (directive) { of = Number(directive[1]); return; }
      if (i < spans.length) lines.push({spans: spans[i], number: ++count, line: of});
      if (/[;{}]\s*$/.test(text)) of = 0;
    });
    main.append(section('The CUDA that it becomes', 'attnc_mod.cuh, which ' + page.template + ' calls. '
      + 'What leaves score() costs less than a score.', {class: 'derived fills'}, codePane('code', lines, choose)));
  }
  return () => {
    if (!page.ir) return;
    const lines = coloured(page.ir, 'ir').map((spans, i) => {
      const from = /!(\d+)\s*$/.exec(page.ir.split('\n')[i]);
      return {spans, number: i + 1, line: from ? Number(from[1]) : 0};
    });
    main.append(section('The IR', 'After all passes, with what is derived for this kernel. The number behind ! is the line.',
      {class: page.live ? 'derived fills' : 'derived wide'}, codePane('ir', lines, choose)));
  };
}
