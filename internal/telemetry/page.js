// Keeps a status page up to date from the events at /live (docs/metrics.md). The page is complete without it.
//
// Names in events come from peers. They are set as text, never as markup, and the page's policy forbids the latter.

const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
const still = matchMedia('(prefers-reduced-motion: reduce)');

// html and svg make an element with attributes and children.
const html = (name, attrs = {}, ...children) => fill(document.createElement(name), attrs, children);
const svg = (name, attrs = {}, ...children) => fill(document.createElementNS(SVG, name), attrs, children);
function fill(e, attrs, children) {
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}
function setText(e, text) { if (e.textContent !== text) e.textContent = text; }
// keep makes parent have as many children as there are items, and has each brought up to date.
function keep(parent, items, make, update) {
  while (parent.childElementCount > items.length) parent.lastElementChild.remove();
  items.forEach((item, i) => {
    if (i >= parent.childElementCount) parent.append(make(item));
    update(parent.children[i], item, i);
  });
}
const tones = new Set(['good', 'warn', 'bad']);
const kinds = new Set(['wait', 'compile', 'cached', 'here', 'trouble', 'failed']);
const kindClass = kind => kinds.has(kind) ? 'k-' + kind : 'k-here';
const setTone = (e, tone) => { e.className = tones.has(tone) ? tone : ''; };

// ---- facts, notes and tables

function showFacts(facts) {
  keep($('facts'), facts, () => html('div', {}, html('dt'), html('dd')), (e, f) => {
    e.className = f.value.length > 32 ? 'long' : '';
    setText(e.children[0], f.name);
    setText(e.children[1], f.value);
    setTone(e.children[1], f.tone);
    let meter = e.children[2];
    if (!f.share) { meter?.remove(); return; }
    if (!meter) e.append(meter = svg('svg', { class: 'meter', 'aria-hidden': 'true' }, svg('rect', { height: '100%' })));
    meter.firstChild.setAttribute('width', share(f.share));
  });
}
const share = s => 100 * Math.min(Math.max(s, 0), 1) + '%';

function showTable(section, t) {
  const [scroll, none, more] = [section.querySelector('.scroll'), section.querySelector('.none'), section.querySelector('.more')];
  scroll.hidden = !t.rows.length;
  none.hidden = !scroll.hidden;
  more.hidden = !t.left;
  setText(more, t.left ? `${t.left} more are not shown.` : '');
  keep(scroll.querySelector('tbody'), t.rows, () => html('tr', { role: 'row' }), (tr, row) =>
    keep(tr, row, () => html('td', { role: 'cell' }), (td, c, i) => showCell(td, c, t.columns[i])));
}

const shown = new WeakMap(); // cells, as they are
function showCell(td, c, column) {
  const now = JSON.stringify(c);
  if (shown.get(td) === now) return;
  shown.set(td, now);
  td.className = c.text ? 'cell' : 'cell empty';
  td.dataset.column = column;
  const text = html('span');
  setTone(text, c.tone);
  // A link leads to a page of this program.
  if (/^[a-z]+(#[a-z-]+)?$/.test(c.link ?? '')) text.append(html('a', { href: c.link }, c.text));
  else text.textContent = c.text;
  td.replaceChildren(...c.share ? [svg('svg', { class: 'bar', 'aria-hidden': 'true' }, svg('rect', { width: share(c.share), height: '100%' }))] : [], text);
}

// ---- what has happened, as far as it is shown

let at = 0;                // of the last event, by the program's clock
let charts = [];           // descriptions
let counts = [];           // by chart: a map from seconds to values
let lanes = [];
let bars = new Map();      // ended ones by ID, the oldest first
let running = [];
const longest = 600e3;     // ms that are remembered, as in the longest span
const mostBars = 6000;

const length = b => b.parts.reduce((n, p) => n + p.ms, 0);
const began = b => b.busy ??= b.begin + (b.parts[0]?.kind === 'wait' ? b.parts[0].ms : 0);
// ended is when b left its place: what follows the last part that used it is on the way back.
const ended = b => b.open ? at : b.left ??= b.begin + length(b) - (b.parts.length > 1 && b.parts.at(-1).kind === 'wait' ? b.parts.at(-1).ms : 0);

function remember(e) {
  if (e.whole) {
    charts = e.charts;
    counts = charts.map(() => new Map());
    bars = new Map();
    placed.clear();
  }
  at = e.at;
  lanes = e.lanes;
  e.counts.forEach((list, i) => {
    for (const [sec, ...values] of list) counts[i].set(sec, values);
    for (const sec of counts[i].keys()) if (sec * 1000 < at - longest) counts[i].delete(sec);
  });
  for (const b of e.ended) bars.set(b.id, b);
  for (const [id, b] of bars) {
    if (bars.size <= mostBars && b.begin + length(b) >= at - longest) break;
    bars.delete(id);
  }
  running = e.running;
  for (const b of running) b.open = true;
  place(e);
}

// ---- which place a bar is in

const placed = new Map(); // lane: a list of places, each a list of ended bars
let inPlace = new Map();  // bar ID: place, of those that ran at the last event

function place(e) {
  const names = new Set(lanes.map(l => l.name));
  for (const name of placed.keys()) if (!names.has(name)) placed.delete(name);
  for (const places of placed.values())
    places.forEach((list, i) => { places[i] = list.filter(b => bars.has(b.id)); });
  const put = (b, taken) => {
    const places = placed.get(b.lane) ?? placed.set(b.lane, []).get(b.lane);
    const free = i => !taken?.has(b.lane + ' ' + i) && !(places[i] ?? []).some(o => o !== b && o.id !== b.id && began(b) < ended(o) && began(o) < ended(b));
    let i = b.place >= 0 ? b.place : inPlace.get(b.id) ?? 0;
    const limit = lanes.find(l => l.name === b.lane)?.places || 1;
    if (b.place < 0 && (i >= limit || !free(i))) for (i = 0; !free(i); i++);
    b.at = i;
    return places[i] ??= [];
  };
  const sorted = list => [...list].sort((x, y) => began(x) - began(y));
  for (const b of sorted(e.ended)) if (names.has(b.lane)) put(b).push(b);
  for (const places of placed.values()) for (let i = 0; i < places.length; i++) places[i] ??= [];
  const taken = new Set(), next = new Map();
  for (const b of sorted(running)) {
    if (!names.has(b.lane)) continue;
    put(b, taken);
    taken.add(b.lane + ' ' + b.at);
    next.set(b.id, b.at);
  }
  inPlace = next;
}

// ---- lanes

const views = new Map(); // lane: its elements
let span = 60e3;         // ms

function showLanes() {
  const box = $('lanes');
  for (const [name, v] of views) if (!lanes.some(l => l.name === name)) { v.row.remove(); views.delete(name); }
  lanes.forEach((l, i) => {
    let v = views.get(l.name);
    if (!v) views.set(l.name, v = newLane());
    if (box.children[i] !== v.row) box.insertBefore(v.row, box.children[i] ?? null); // in the order of the event
    showLane(l, v);
  });
  let axis = $('axis');
  if (!axis) axis = html('div', { class: 'lane last', id: 'axis' }, html('span'), svg('svg', { class: 'axis', height: 16, 'aria-hidden': 'true' }));
  if (box.lastElementChild !== axis) box.append(axis);
  showAxis(axis.lastChild, width(axis.lastChild), 12);
}
const width = e => Math.max(e.clientWidth || e.getBoundingClientRect().width, 1);

function newLane() {
  const v = { name: html('span', { class: 'name' }), use: html('span', { class: 'use' }), places: svg('g'), moving: svg('g'), drawn: new Map() };
  v.svg = svg('svg', { class: 'lanes', role: 'img' }, v.places, v.moving);
  v.row = html('div', { class: 'lane' }, html('div', { class: 'name' }, v.name, v.use), v.svg);
  return v;
}

function showLane(l, v) {
  const from = at - span, mine = [...bars.values()].filter(b => b.lane === l.name && b.at !== undefined && b.begin + length(b) > from);
  const open = running.filter(b => b.lane === l.name && b.at !== undefined);
  let used = l.places;
  for (const b of [...mine, ...open]) used = Math.max(used, b.at + 1);
  used = Math.min(Math.max(used, 1), 128);
  const high = used <= 6 ? 16 : used <= 16 ? 10 : used <= 40 ? 5 : 3, gap = high > 5 ? 2 : 1, w = width(v.svg);
  setText(v.name, l.name);
  setTone(v.name, l.tone);
  v.name.title = l.name;
  const busy = l.places ? `${open.length} of ${l.places}` : open.length ? `${open.length} running` : 'idle';
  setText(v.use, (l.note ? l.note + ' · ' : '') + busy);
  v.svg.setAttribute('aria-label', `${l.name}: ${busy} in use, ${mine.length} ended within ${spanName()}`);
  const shape = [w, high, span, used, l.places].join();
  if (v.shape !== shape) { // everything is where it was not before
    v.shape = shape;
    v.base = at;
    v.drawn.clear();
    v.moving.replaceChildren();
    v.svg.setAttribute('height', used * (high + gap));
    v.places.replaceChildren(...Array.from({ length: used }, (_, i) =>
      svg('rect', { class: l.places && i >= l.places ? 'beyond' : 'place', y: i * (high + gap), width: '100%', height: high, rx: 2 })));
  }
  const scale = w / span, now = new Set();
  for (const b of mine.concat(open)) {
    const key = b.open ? `${b.id} ${b.at} ${at}` : b.id + ' ' + b.at;
    now.add(key);
    if (!v.drawn.has(key)) {
      const e = drawBar(b, v.base, scale, high, gap);
      v.drawn.set(key, e);
      v.moving.append(e);
    }
  }
  for (const [key, e] of v.drawn) if (!now.has(key)) { e.remove(); v.drawn.delete(key); }
  v.moving.setAttribute('transform', `translate(${(w - (at - v.base) * scale).toFixed(2)} 0)`);
}

function drawBar(b, base, scale, high, gap) {
  const y = b.at * (high + gap), x = t => (t - base) * scale;
  const g = svg('g', { class: b.open ? 'bar open' : 'bar' }, svg('title', {}, describe(b)));
  let t = b.begin;
  for (const p of b.parts) {
    const end = b.open && p === b.parts.at(-1) ? at : t + p.ms, wide = Math.max((end - t) * scale, p.kind === 'wait' ? 0 : 1.5);
    if (p.kind === 'wait') g.append(svg('rect', { class: 'k-wait', x: x(t), y: y + high / 2 - 1, width: wide, height: Math.min(2, high) }));
    else {
      const box = svg('svg', { x: x(t), y, width: wide, height: high }, svg('rect', { class: kindClass(b.tone === 'bad' ? p.kind === 'trouble' ? 'trouble' : 'failed' : p.kind), width: '100%', height: '100%', rx: 2 }));
      if (b.tone === 'bad' || p.kind === 'trouble') box.append(svg('rect', { class: 'hatch', width: '100%', height: '100%' }));
      if (high >= 14 && wide > 34) box.append(svg('text', { x: 4, y: high - 4.5 }, b.text.slice(b.text.lastIndexOf('/') + 1)));
      g.append(box);
    }
    t = end;
  }
  return g;
}

function describe(b) {
  const parts = b.parts.map((p, i) => `${words.get(p.kind) ?? p.kind} ${ms(b.open && i === b.parts.length - 1 ? at - b.begin : p.ms)}`);
  return [b.text, b.more, parts.join(', ')].filter(Boolean).join('\n');
}
const ms = n => n < 1000 ? `${n < 10 ? n.toFixed(1) : Math.round(n)} ms` : `${(n / 1000).toFixed(n < 10e3 ? 2 : 1)} s`;
const spanName = () => span < 60e3 ? span / 1000 + ' s' : span / 60e3 + ' min';

function ticks(w) {
  const steps = [5, 10, 15, 30, 60, 120, 300].map(s => s * 1000);
  const step = steps.find(s => s / span * w >= 70) ?? 300e3, list = [];
  for (let t = 0; t < span; t += step) list.push([w - t / span * w, t ? '−' + (t < 60e3 || t % 60e3 ? t / 1000 + ' s' : t / 60e3 + ' min') : 'now']);
  return list;
}
function showAxis(e, w, y) {
  e.replaceChildren(...ticks(w).map(([x, text]) => svg('text', { x, y, 'text-anchor': text === 'now' ? 'end' : 'middle' }, text)).filter(t => +t.getAttribute('x') > 20));
}

// ---- charts

const top = 15, high = 68; // above the plot, and of it

const words = new Map(); // kind: its name in the legend

function showLegend(e) {
  setText($('lanes-title'), e.title);
  words.clear();
  for (const k of e.legend) words.set(k.kind, k.name);
  $('legend').replaceChildren(...e.legend.map(k => html('li', {}, swatch(k.kind), k.name)));
  $('charts').replaceChildren(...charts.map(c => html('figure', {}, html('figcaption', {}, html('b', {}, c.title), html('ul', { class: 'legend' })),
    svg('svg', { class: 'chart', height: top + high + 18, role: 'img' }))));
}
const hatched = kind => kind === 'failed' || kind === 'trouble';
function swatch(kind) {
  const e = svg('svg', { 'aria-hidden': 'true' }, svg('rect', { class: kindClass(kind), width: '100%', height: '100%' }));
  if (hatched(kind)) e.append(svg('rect', { class: 'hatch', width: '100%', height: '100%' }));
  return e;
}

function showCharts() {
  charts.forEach((c, i) => {
    const figure = $('charts').children[i], e = figure.lastChild, seen = counts[i];
    const w = width(e), bin = span > 300e3 ? 5 : 1, last = Math.floor(at / 1000 / bin) * bin, n = Math.round(span / 1000 / bin);
    // The second that is under way is not shown: it is not over.
    const bins = Array.from({ length: n }, (_, k) => {
      const sums = c.series.map(() => 0);
      let found = false;
      for (let s = last - (n - k) * bin; s < last - (n - k - 1) * bin; s++) {
        const v = seen.get(s);
        if (!v) continue;
        found = true;
        v.forEach((x, j) => { sums[j] = c.mode === 'level' ? x : sums[j] + x; });
      }
      return c.mode === 'level' ? found ? sums : null : c.mode === 'rate' ? sums.map(x => x / bin) : sums;
    });
    const step = w / n, parts = [], recent = bins.slice(-Math.max(1, Math.round(10 / bin)));
    let now, most = 1, unit = '';
    if (c.mode === 'rate') {
      most = nice(Math.max(1, ...bins.map(b => b.reduce((x, y) => x + y, 0))));
      const sums = bins.map(() => 0);
      c.series.forEach((s, j) => {
        let d = '';
        bins.forEach((b, k) => {
          if (!b[j]) return;
          const y0 = top + high - sums[k] / most * high, tall = b[j] / most * high;
          sums[k] += b[j];
          d += `M${(k * step).toFixed(1)} ${y0.toFixed(1)}h${(step * 0.86).toFixed(1)}v${(-tall).toFixed(1)}h${(-step * 0.86).toFixed(1)}z`;
        });
        if (d) parts.push(svg('path', { class: kindClass(s.kind), d }));
      });
      now = c.series.map((s, j) => recent.reduce((x, b) => x + b[j], 0) / recent.length).map(x => x >= 10 || x === 0 ? x.toFixed(0) : x.toFixed(1));
      unit = '/s';
    } else if (c.mode === 'share') {
      most = 100;
      const back = Math.max(1, Math.round(10 / bin)), part = k => {
        let [a, b] = [0, 0];
        for (let j = Math.max(0, k - back + 1); j <= k; j++) { a += bins[j][0]; b += bins[j][1]; }
        return b ? 100 * a / b : null;
      };
      parts.push(line(c.series[0].kind, bins.map((_, k) => part(k)), step, most));
      const [a, b] = bins.reduce(([x, y], v) => [x + v[0], y + v[1]], [0, 0]);
      now = [b ? `${Math.round(100 * a / b)} % in ${spanName()}, ${a} of ${b}` : `none asked in ${spanName()}`];
    } else {
      most = nice(Math.max(1, ...bins.flatMap(b => b ?? [0])));
      c.series.forEach((s, j) => parts.push(line(s.kind, bins.map(b => b ? b[j] : null), step, most)));
      now = c.series.map((s, j) => bins.findLast(b => b)?.[j] ?? '-');
    }
    const grid = [0, 0.5, 1].map(f => svg('line', { class: 'grid', x1: 0, x2: w, y1: Math.round(top + high - f * high) + 0.5, y2: Math.round(top + high - f * high) + 0.5 }));
    const scale = [svg('text', { x: 0, y: 11 }, most + (c.mode === 'share' ? ' %' : unit))];
    const times = ticks(w).filter(([x]) => x > 20).map(([x, text]) => svg('text', { x, y: top + high + 14, 'text-anchor': text === 'now' ? 'end' : 'middle' }, text));
    e.replaceChildren(...grid, ...parts, ...scale, ...times);
    const series = c.mode === 'share' ? c.series.slice(0, 1) : c.series;
    keep(figure.querySelector('ul'), series, s => html('li', {}, swatch(s.kind), html('span')), (li, s, j) =>
      setText(li.lastChild, c.mode === 'share' ? now[0] : `${now[j]}${unit} ${s.name}`));
    e.setAttribute('aria-label', `${c.title}: ` + series.map((s, j) => c.mode === 'share' ? now[0] : `${now[j]}${unit} ${s.name}`).join(', '));
  });
}

function line(kind, values, step, most) {
  let d = '', gap = true;
  values.forEach((v, k) => {
    if (v === null) { gap = true; return; }
    d += `${gap ? 'M' : 'L'}${((k + 0.5) * step).toFixed(1)} ${(top + high - Math.min(v / most, 1) * (high - 2) - 1).toFixed(1)}`;
    gap = false;
  });
  return svg('path', { class: 'line ' + kindClass(kind), d });
}
function nice(n) {
  const p = 10 ** Math.floor(Math.log10(n));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map(f => f * p).find(f => f >= n);
}

// ---- events

let drawnAt = 0;
function draw() {
  drawnAt = at;
  if (!charts.length && !lanes.length) return;
  showCharts();
  showLanes();
}

function show(e) {
  if (e.whole && e.version !== document.documentElement.dataset.version) { // another program serves this address now
    location.reload();
    return;
  }
  remember(e);
  const state = $('state');
  setText(state, e.state);
  state.className = 'state ' + (e.ready ? 'good' : 'bad');
  keep($('notes'), e.notes, () => html('p', { class: 'note' }), (p, text) => setText(p, text));
  showFacts(e.facts);
  for (const [i, t] of Object.entries(e.tables ?? {})) showTable(document.querySelector(`[data-table="${+i}"]`), t);
  $('live').hidden = false;
  if (e.whole) showLegend(e);
  const n = e.left.lanes ?? 0;
  setText($('left'), n ? `${n} more hosts are only in the table.` : '');
  if (e.whole || !still.matches || at - drawnAt >= 5000) draw();
}

let stream = null, paused = false, retry = 0;

function say(text, tone) {
  setText($('feed'), text);
  setTone($('feed'), tone);
}

function connect() {
  clearTimeout(retry);
  if (stream || paused || document.hidden) return;
  say('connecting');
  stream = new EventSource('live');
  stream.onmessage = m => {
    say('live', 'good');
    show(JSON.parse(m.data));
  };
  stream.onerror = () => {
    if (stream.readyState !== EventSource.CLOSED) { say('connection lost, trying again', 'bad'); return; }
    disconnect(); // refused: an EventSource does not say why, and does not try again
    refused();
  };
}

async function refused() {
  const stop = new AbortController();
  let why = 'no connection';
  try {
    const answer = await fetch('live', { signal: stop.signal });
    why = answer.ok ? 'connection lost' : (await answer.text()).trim();
  } catch { /* it is as it was */ }
  stop.abort();
  say(why, 'bad');
  retry = setTimeout(connect, 10e3);
}

function disconnect() {
  clearTimeout(retry);
  stream?.close();
  stream = null;
}

$('control').hidden = false;
$('control').addEventListener('submit', e => e.preventDefault());
$('pause').addEventListener('click', () => {
  paused = !paused;
  $('pause').setAttribute('aria-pressed', paused);
  setText($('pause'), paused ? 'Go on' : 'Pause');
  if (paused) { disconnect(); say('paused'); } else connect();
});
$('span').addEventListener('change', () => { span = 1000 * $('span').value; draw(); });
span = 1000 * $('span').value;
// A page that nobody sees costs nobody anything: neither the program nor one of the few connections of a browser.
document.addEventListener('visibilitychange', () => { if (document.hidden) disconnect(); else connect(); });
new ResizeObserver(() => draw()).observe($('live'));
document.body.append(svg('svg', { width: 0, height: 0, 'aria-hidden': 'true' }, svg('defs', {},
  svg('pattern', { id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' }, svg('path', { d: 'M0 0V6' })))));
connect();
