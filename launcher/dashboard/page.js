// Shows what /status, /links, /requests, /history and /explain of this address say. Read-only. Text from the job gets into the page as text only.
'use strict';

const INTERVAL_MS = 1000;
const TIMEOUT_MS = 5000;
const POINTS_MAX = 600;
const COMPACT_FROM = 60; // Processes; beyond, cards have one line less.

const $ = (id) => document.getElementById(id);
const make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};
// Writes only what differs, so that a page of 100 workers stays cheap.
const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const setClass = (element, name) => { if (element.className !== name) element.className = name; };

// ---- Numbers and words

const number = (value) => (typeof value === 'number' && isFinite(value) ? value : 0);
const text = (value) => (typeof value === 'string' ? value : '');
function millis(us) {
  if (us === null) return '–';
  const ms = us / 1000;
  return ms >= 10000 ? (ms / 1000).toFixed(1) + ' s' : ms >= 100 ? ms.toFixed(0) + ' ms' : ms.toFixed(1) + ' ms';
}
function bytes(value) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (value >= 1000 && unit + 1 < units.length) { value /= 1000; unit += 1; }
  return value.toFixed(unit === 0 ? 0 : 1) + ' ' + units[unit];
}
function duration(seconds) {
  const s = Math.floor(number(seconds));
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor((s % 3600) / 60) + ' min';
  return Math.floor(s / 86400) + ' d';
}
const isWorker = (process) => process.role !== 'router' && process.role !== 'batch';
const serves = (process) => process.state === 'ready' && !process.suspected;
function tone(process) {
  if (serves(process)) return 'state-ready';
  return ['starting', 'registered', 'draining', 'waiting'].includes(process.state) && !process.suspected ? 'state-mid' : 'state-bad';
}
const stateText = (process) => text(process.state) + (process.suspected ? ' (silent)' : '') + (process.starved ? ' (starved)' : '');
const kvPart = (load) => (number(load.kv_rows_max) > 0 ? number(load.kv_rows_used) / load.kv_rows_max : 0);
const columnOf = (process) => (isWorker(process) ? (process.role === 'prefill' ? 'prefill' : 'decode') : 'router');

// ---- What is known

let status = null;
let links = [];
let before = new Map(); // Engine id -> load, at the last look.
let lookedAt = 0;
let flows = new Map(); // "from to" -> {from, to, rate, alive}
let linkBytes = new Map();
let linksAt = 0;
let chosen = null;
let paused = false;
const cards = new Map(); // Name -> its elements.
const rows = new Map();
const series = { ttft: [], itl: [], queue: [], tokens: [] };
const GAP_MS = 3000; // Without a look for so long, the launcher's own history fills the charts.
const requestRows = new Map(); // Key -> its elements.
let answeredRequests = { routers: [] };
let slowest = false;

let key = ''; // Of an address beyond loopback. Only in this page's memory, and never in an address.
async function ask(path) {
  const headers = key === '' ? {} : { Authorization: 'Bearer ' + key };
  const reply = await fetch(path, { cache: 'no-store', headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (reply.status === 401) askForKey();
  if (!reply.ok) throw new Error(path + ' answered ' + reply.status);
  return reply;
}

let keyWanted = false;
function askForKey() {
  if (!keyWanted && key !== '') setText($('key-hint'), 'The launcher refuses this key.');
  keyWanted = true;
  if (!$('key-form').hidden) return;
  $('key-form').hidden = false;
  $('main').hidden = true;
  $('key').focus();
}
$('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  key = $('key').value.trim();
  $('key').value = '';
  $('key-form').hidden = true;
  $('main').hidden = false;
  keyWanted = false;
});

// ---- A look

async function fillCharts() {
  const { points } = await (await ask('/history')).json();
  for (const [index, name] of ['ttft', 'itl', 'queue', 'tokens'].entries()) {
    series[name] = points.map((point) => (typeof point[index] === 'number' ? point[index] : null)).slice(-POINTS_MAX);
  }
}

function rates(processes, now) {
  const sums = { ttft: 0, ttftCount: 0, itl: 0, itlCount: 0, tokens: 0, running: 0, queued: 0, used: 0, rows: 0 };
  const next = new Map();
  for (const process of processes) {
    const load = process.load || {};
    if (!isWorker(process) || !serves(process)) continue; // The load of others is old.
    sums.queued += number(load.requests_queued);
    if (process.role !== 'prefill') sums.running += number(load.requests_running);
    sums.used += number(load.kv_rows_used);
    sums.rows += number(load.kv_rows_max);
    next.set(process.engine_id, load);
    const old = before.get(process.engine_id);
    if (!old) continue;
    const grown = (field) => Math.max(0, number(load[field]) - number(old[field]));
    // A prefill worker's own first token is never shown to a client.
    if (process.role !== 'prefill') {
      sums.ttft += grown('ttft_sum_us');
      sums.ttftCount += grown('ttft_count');
      sums.itl += grown('itl_sum_us');
      sums.itlCount += grown('itl_count');
    }
    sums.tokens += grown('tokens_computed');
  }
  const elapsed = lookedAt > 0 ? (now - lookedAt) / 1000 : 0;
  before = next;
  lookedAt = now;
  return {
    ttft: sums.ttftCount > 0 ? sums.ttft / sums.ttftCount : null,
    itl: sums.itlCount > 0 ? sums.itl / sums.itlCount : null,
    tokens: elapsed > 0 ? sums.tokens / elapsed : null,
    running: sums.running, queued: sums.queued, kv: sums.rows > 0 ? sums.used / sums.rows : 0,
  };
}

function readLinks(answer, processes, now) {
  const names = new Map(processes.map((process) => [process.engine_id, process.name]));
  const elapsed = linksAt > 0 ? (now - linksAt) / 1000 : 0;
  const totals = new Map();
  const found = new Map();
  links = [];
  for (const worker of answer.workers || []) {
    for (const link of worker.links || []) {
      const peer = names.get(link.peer) || text(link.peer);
      const sends = link.direction === 'sends';
      const from = sends ? worker.name : peer;
      const to = sends ? peer : worker.name;
      links.push({ from, to, seenBy: worker.name, link });
      if (sends) continue; // The receiver counts what has arrived whole.
      const key = from + ' ' + to;
      const total = number(link.bytes);
      totals.set(key, total);
      const old = linkBytes.get(key);
      const rate = old !== undefined && elapsed > 0 ? Math.max(0, total - old) / elapsed : 0;
      found.set(key, { from, to, rate, alive: number(link.transfers_alive), up: link.state === 'open' });
    }
  }
  linkBytes = totals;
  linksAt = now;
  flows = found;
}

// ---- The page

function tile(id, label) {
  let entry = $(id);
  if (!entry) {
    const box = make('div');
    box.append(make('dt', '', label));
    entry = make('dd');
    entry.id = id;
    box.append(entry);
    $('tiles').append(box);
  }
  return entry;
}

function showTiles(now) {
  let moved = 0;
  for (const flow of flows.values()) moved += flow.rate;
  setText(tile('t-running', 'Requests running'), String(now.running));
  setText(tile('t-queued', 'Queued'), String(now.queued));
  setText(tile('t-tokens', 'Tokens per second'), now.tokens === null ? '–' : now.tokens.toFixed(0));
  setText(tile('t-ttft', 'Time to first token'), millis(now.ttft));
  setText(tile('t-itl', 'Between tokens'), millis(now.itl));
  setText(tile('t-kv', 'KV memory used'), (100 * now.kv).toFixed(0) + ' %');
  setText(tile('t-moved', 'KV moved'), bytes(moved) + '/s');
}

function cardOf(process) {
  let card = cards.get(process.name);
  if (card) return card;
  const button = make('button');
  button.type = 'button';
  card = { button, title: make('b'), state: make('span'), load: make('span'), meter: make('meter') };
  button.append(card.title, card.state, card.load, card.meter);
  button.addEventListener('click', () => choose(chosen === process.name ? null : process.name));
  cards.set(process.name, card);
  return card;
}

function showColumn(name, title, processes, compact) {
  const column = $('column-' + name);
  if (!column.firstChild) column.append(make('h3'));
  setText(column.firstChild, title + ' (' + processes.length + ')');
  let at = column.firstChild.nextSibling;
  for (const process of processes) {
    const card = cardOf(process);
    const load = process.load || {};
    setClass(card.button, 'card ' + name);
    card.button.setAttribute('aria-pressed', String(chosen === process.name));
    setText(card.title, process.name);
    setClass(card.state, tone(process));
    setText(card.state, stateText(process));
    setText(card.load, number(load.requests_running) + ' run, ' + number(load.requests_queued) + ' wait');
    card.load.hidden = compact || !serves(process);
    card.meter.hidden = !isWorker(process) || !serves(process) || number(load.kv_rows_max) === 0;
    const part = kvPart(load);
    if (card.meter.value !== part) card.meter.value = part;
    card.meter.setAttribute('aria-label', 'KV memory used');
    if (at === card.button) at = at.nextSibling;
    else column.insertBefore(card.button, at);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function showTopology(processes) {
  const compact = processes.length > COMPACT_FROM;
  setClass($('topology'), compact ? 'compact' : '');
  for (const [name, title] of [['router', 'Routers'], ['prefill', 'Prefill'], ['decode', 'Decode']]) {
    showColumn(name, title, processes.filter((process) => columnOf(process) === name), compact);
  }
  const names = new Set(processes.map((process) => process.name));
  for (const name of cards.keys()) if (!names.has(name)) cards.delete(name);
  if (chosen !== null && !names.has(chosen)) choose(null);
}

function showRows(processes) {
  const body = $('rows');
  let at = body.firstChild;
  for (const process of processes) {
    const load = process.load || {};
    let row = rows.get(process.name);
    if (!row) {
      row = make('tr');
      for (let i = 0; i < 10; i += 1) row.append(make('td'));
      rows.set(process.name, row);
    }
    const kv = number(load.kv_rows_max) > 0 ? (100 * kvPart(load)).toFixed(0) + ' %' : '–';
    const values = [process.name, process.role, stateText(process), duration(process.seconds_in_state), String(number(load.requests_running)),
      String(number(load.requests_queued)), kv, String(number(process.restarts)), text(process.node) || '–', text(process.last_exit) || '–'];
    values.forEach((value, index) => setText(row.children[index], text(value)));
    setClass(row.children[2], tone(process));
    if (at === row) at = at.nextSibling;
    else body.insertBefore(row, at);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
  const names = new Set(processes.map((process) => process.name));
  for (const name of rows.keys()) if (!names.has(name)) rows.delete(name);
}

function showNews(lines) {
  const news = $('news');
  const wanted = lines.split('\n').filter((line) => line !== '').reverse();
  if (news.children.length === wanted.length && wanted.every((line, index) => news.children[index].textContent === line)) return;
  news.replaceChildren(...wanted.map((line) => make('li', '', line)));
}

// Requests that have ended do not change: a row is made once.
const PHASES = [['queue', 'queue_us', 'Queue'], ['prefill', 'prefill_us', 'Prefill'], ['kv', 'kv_us', 'KV'], ['decode', 'decode_us', 'Decode']];
const waitOf = (request) => number(request.queue_us) + number(request.prefill_us) + number(request.kv_us);
const timeOf = (request) => waitOf(request) + number(request.decode_us);
const REQUESTS_SHOWN_MAX = 40;
const SLOWEST_SHOWN_MAX = 16;
const keyOf = (request) => [request.number, request.queue_us, request.prefill_us, request.kv_us, request.decode_us].join(' ');
function requestRow(request) {
  const item = make('li');
  const details = make('details');
  const summary = make('summary');
  const bar = make('span', 'waterfall');
  const words = [];
  const facts = [];
  for (const [name, field, label] of PHASES) {
    const part = make('i', name);
    const time = number(request[field]);
    part.hidden = time <= 0;
    part.style.flexGrow = String(time);
    bar.append(part);
    facts.push([label, millis(time)]);
    if (time > 0) words.push(name + ' ' + millis(time));
  }
  bar.setAttribute('role', 'img');
  bar.setAttribute('aria-label', words.join(', '));
  const fine = request.outcome === 'ok';
  summary.append(make('span', fine ? '' : 'state-bad', fine ? '#' + number(request.number) : text(request.outcome).replace(/_/g, ' ')), bar,
    make('span', '', millis(timeOf(request))));
  const list = make('dl');
  const ended = request.ended_at > 0 ? new Date(1000 * request.ended_at).toLocaleTimeString() : '';
  facts.push(['Prefill worker', text(request.prefill)], ['Decode worker', text(request.decode)], ['Tenant', text(request.tenant)],
    ['Status', number(request.status) > 0 ? String(request.status) : ''], ['Attempts', number(request.attempts) > 1 ? String(request.attempts) : ''],
    ['Streamed', request.stream ? 'yes' : 'no'], ['Ended', ended], ['Request id', text(request.request_id) || 'of the client']);
  for (const [label, value] of facts) {
    if (!value) continue;
    const row = make('div');
    row.append(make('dt', '', label), make('dd', '', value));
    list.append(row);
  }
  details.append(summary, list);
  item.append(details);
  return { item, bar };
}
function showRequests() {
  const known = new Map(); // Routers that share a port may give the same answer.
  for (const router of answeredRequests.routers || []) {
    for (const request of router.requests || []) known.set(keyOf(request), request);
  }
  const order = slowest ? (a, b) => waitOf(b) - waitOf(a) : (a, b) => number(b.ended_at) - number(a.ended_at) || number(b.number) - number(a.number);
  const shown = [...known.values()].sort(order).slice(0, slowest ? SLOWEST_SHOWN_MAX : REQUESTS_SHOWN_MAX);
  const longest = Math.max(...shown.map(timeOf), 1);
  const list = $('requests');
  let at = list.firstChild;
  const keys = new Set();
  for (const request of shown) {
    const key = keyOf(request);
    keys.add(key);
    if (!requestRows.has(key)) requestRows.set(key, requestRow(request));
    const row = requestRows.get(key);
    const width = Math.max(100 * timeOf(request) / longest, 1).toFixed(1) + '%';
    if (row.bar.style.width !== width) row.bar.style.width = width;
    if (at === row.item) at = at.nextSibling;
    else list.insertBefore(row.item, at);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
  for (const key of requestRows.keys()) if (!keys.has(key)) requestRows.delete(key);
  $('no-requests').hidden = shown.length > 0;
}
function showSlowest(on) {
  slowest = on;
  $('newest').setAttribute('aria-pressed', String(!on));
  $('slowest').setAttribute('aria-pressed', String(on));
  showRequests();
}

function showDetail() {
  const detail = $('detail');
  const process = status ? status.processes.find((each) => each.name === chosen) : undefined;
  detail.hidden = !process;
  if (!process) return;
  const load = process.load || {};
  const facts = [['Name', process.name], ['Role', process.role], ['State', stateText(process)], ['For', duration(process.seconds_in_state)],
    ['Address', process.url], ['Process id', String(number(process.pid))], ['Node', process.node], ['Restarts', String(number(process.restarts))],
    ['Crashes', String(number(process.crashes))], ['Hangs', String(number(process.hangs))], ['Tokens queued', String(number(load.tokens_queued))],
    ['Stands still', number(load.standstill_ms) + ' ms'], ['Last exit', process.last_exit]];
  for (const { from, to, seenBy, link } of links) {
    if (seenBy !== chosen) continue;
    const flow = flows.get(from + ' ' + to);
    facts.push([from + ' → ' + to, text(link.transport) + ', ' + text(link.state) + ', ' + bytes(number(link.bytes)) +
      (flow && flow.rate > 0 ? ', ' + bytes(flow.rate) + '/s' : '') + (number(link.failures) > 0 ? ', ' + link.failures + ' failed' : '')]);
  }
  const list = make('dl');
  for (const [label, value] of facts) {
    if (!text(value)) continue;
    const row = make('div');
    row.append(make('dt', '', label), make('dd', '', value));
    list.append(row);
  }
  detail.replaceChildren(list);
}

function choose(name) {
  chosen = name;
  for (const [each, card] of cards) card.button.setAttribute('aria-pressed', String(each === chosen));
  showDetail();
  drawWires();
}

// ---- Drawings

const still = matchMedia('(prefers-reduced-motion: reduce)');
let colors = {};
function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['line', 'soft', 'prefill', 'decode', 'text']) colors[name] = style.getPropertyValue('--' + name).trim();
}

function sized(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * scale);
  const height = Math.round(canvas.clientHeight * scale);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return pen;
}

let places = []; // Ends of wires, read once per look: reading them makes the browser lay out.
function placeWires() {
  const origin = $('wires').getBoundingClientRect();
  const boxes = new Map();
  const boxOf = (name) => {
    if (!boxes.has(name)) boxes.set(name, cards.has(name) ? cards.get(name).button.getBoundingClientRect() : null);
    return boxes.get(name);
  };
  places = [];
  for (const flow of flows.values()) {
    const from = boxOf(flow.from);
    const to = boxOf(flow.to);
    if (!from || !to) continue;
    const beside = to.left >= from.right;
    places.push({ flow, beside,
      x1: (beside ? from.right : (from.left + from.right) / 2) - origin.left, y1: (beside ? (from.top + from.bottom) / 2 : from.bottom) - origin.top,
      x2: (beside ? to.left : (to.left + to.right) / 2) - origin.left, y2: (beside ? (to.top + to.bottom) / 2 : to.top) - origin.top });
  }
}

// Many curves cost a browser without a GPU half a second. Then they are straight, whole, and drawn once per look, and links at rest are
// left out.
const MOVING_MAX = 60;
const SHOWN_MAX = 300;
let offset = 0;
function drawWires() {
  const pen = sized($('wires'));
  const meant = ({ flow }) => chosen === null || flow.from === chosen || flow.to === chosen;
  const isActive = ({ flow }) => flow.rate > 0 || flow.alive > 0;
  const few = places.length <= SHOWN_MAX;
  const shown = few ? places : places.filter((place) => meant(place) && (isActive(place) || chosen !== null));
  const curved = shown.length <= SHOWN_MAX;
  const dashed = shown.filter(isActive).length <= MOVING_MAX;
  // One stroke for all wires of one look.
  const groups = new Map();
  for (const place of shown) {
    const active = isActive(place);
    const width = active ? Math.round(2 * Math.min(6, 1.5 + Math.log10(1 + place.flow.rate / 1e5))) / 2 : 1;
    const key = (active ? 'a' : 'b') + (meant(place) ? '' : 'c') + width;
    if (!groups.has(key)) groups.set(key, { active, width, faded: !meant(place), wires: [] });
    groups.get(key).wires.push(place);
  }
  for (const { active, width, faded, wires } of groups.values()) {
    pen.globalAlpha = faded ? 0.15 : active ? (curved ? 0.9 : 0.04 + 60 / shown.length) : 0.6;
    pen.strokeStyle = active ? colors.prefill : colors.line;
    pen.lineWidth = curved ? width : 1;
    pen.setLineDash(active && dashed ? [7, 5] : []);
    pen.lineDashOffset = -offset;
    pen.beginPath();
    for (const { beside, x1, y1, x2, y2 } of wires) {
      pen.moveTo(x1, y1);
      if (!curved) pen.lineTo(x2, y2);
      else if (beside) pen.bezierCurveTo((x1 + x2) / 2, y1, (x1 + x2) / 2, y2, x2, y2);
      else pen.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2);
    }
    pen.stroke();
  }
  pen.globalAlpha = 1;
  return dashed && shown.some(isActive);
}

let frame = 0;
let drawnAt = 0;
function animate(now) {
  frame = 0;
  if (now - drawnAt >= 33) {
    drawnAt = now;
    offset = (offset + 1) % 12;
    if (!drawWires()) return;
  }
  frame = requestAnimationFrame(animate);
}
function startWires() {
  placeWires();
  const moving = drawWires();
  if (moving && frame === 0 && !still.matches && !document.hidden) frame = requestAnimationFrame(animate);
}

const CHARTS = [['ttft', 'Time to first token', millis], ['itl', 'Between tokens', millis], ['queue', 'Requests queued', (value) => value.toFixed(0)],
  ['tokens', 'Tokens per second', (value) => value.toFixed(0)]];
function chartOf(name, title) {
  let chart = $('chart-' + name);
  if (!chart) {
    chart = make('figure', 'chart');
    chart.id = 'chart-' + name;
    const caption = make('figcaption');
    caption.append(make('span', '', title), make('b'));
    const canvas = make('canvas');
    canvas.setAttribute('role', 'img');
    chart.append(caption, canvas);
    $('charts').append(chart);
  }
  return chart;
}
function showCharts() {
  for (const [name, title, shown] of CHARTS) {
    const chart = chartOf(name, title);
    const points = series[name];
    const values = points.filter((value) => value !== null);
    const most = Math.max(...values, 0);
    const last = values.length > 0 ? values[values.length - 1] : null;
    const words = last === null ? 'no data yet' : shown(last) + ', max ' + shown(most);
    setText(chart.querySelector('b'), words);
    const canvas = chart.querySelector('canvas');
    canvas.setAttribute('aria-label', title + ': ' + words);
    const pen = sized(canvas);
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    pen.strokeStyle = colors.line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(0, height - 0.5);
    pen.lineTo(width, height - 0.5);
    pen.stroke();
    if (most === 0) continue;
    pen.strokeStyle = colors.prefill;
    pen.lineWidth = 2;
    pen.beginPath();
    const step = width / (Math.max(points.length, 60) - 1);
    let open = false;
    points.forEach((value, index) => {
      if (value === null) { open = false; return; }
      const x = index * step;
      const y = height - 3 - (value / most) * (height - 10);
      if (open) pen.lineTo(x, y);
      else { pen.moveTo(x - 3, y); pen.lineTo(x, y); }
      open = true;
    });
    pen.stroke();
  }
}

// ---- The clock

function trouble(words) { setText($('trouble'), words); }

async function look() {
  const json = (reply) => reply.json();
  const [newStatus, newLinks, newRequests, explained] = await Promise.all([ask('/status').then(json), ask('/links').then(json),
    ask('/requests').then(json), ask('/explain').then((reply) => reply.text())]);
  const missed = lookedAt === 0 || performance.now() - lookedAt > GAP_MS;
  if (missed) await fillCharts();
  const at = performance.now();
  status = newStatus;
  const now = rates(status.processes, at);
  readLinks(newLinks, status.processes, at);
  for (const [name, value] of missed ? [] : [['ttft', now.ttft], ['itl', now.itl], ['queue', now.queued], ['tokens', now.tokens]]) {
    series[name].push(value);
    if (series[name].length > POINTS_MAX) series[name].shift();
  }
  const waits = status.processes.filter((process) => !serves(process)).length;
  document.title = text(status.job) + ': ' + text(status.state);
  setText($('job'), text(status.job));
  setText($('state'), text(status.state) + (waits > 0 ? ' · ' + waits + ' not serving' : ''));
  setClass($('state'), 'pill' + (status.state === 'unavailable' || waits > 0 && status.state === 'ready' ? ' bad' : status.state === 'ready' ? ' good' : ''));
  const models = status.models ? status.models.join(', ') : text(status.model);
  setText($('facts'), [models, text(status.url), status.processes.length + ' processes'].filter(Boolean).join(' · '));
  showTiles(now);
  showTopology(status.processes);
  showRows(status.processes);
  answeredRequests = newRequests;
  showRequests();
  showNews(explained);
  showDetail();
  showCharts();
  startWires();
}

async function tick() {
  const begun = performance.now();
  if (!paused && !document.hidden && !keyWanted) {
    try {
      await look();
      trouble('');
    } catch (error) {
      if (keyWanted) trouble('');
      else trouble('The launcher does not answer; what is shown is old. (' + error.message + ')');
    }
  }
  setTimeout(tick, Math.max(100, INTERVAL_MS - (performance.now() - begun)));
}

// ---- Hands

function setPaused(on) {
  paused = on;
  $('pause').setAttribute('aria-pressed', String(on));
  setText($('pause'), on ? 'Go on' : 'Pause');
}
const THEMES = ['auto', 'light', 'dark'];
function setTheme(name) {
  if (name === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  setText($('theme'), 'Theme: ' + name);
  try { localStorage.setItem('pdjob-theme', name); } catch (error) { /* Storage may be off. */ }
  readColors();
  showCharts();
  drawWires();
}
const themeNow = () => document.documentElement.dataset.theme || 'auto';
const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(themeNow()) + 1) % THEMES.length]);

function move(step) {
  const buttons = [...document.querySelectorAll('.card')];
  if (buttons.length === 0) return;
  const at = buttons.indexOf(document.activeElement);
  const next = buttons[at < 0 ? 0 : (at + step + buttons.length) % buttons.length];
  next.focus();
  choose(next.firstChild.textContent);
}
document.addEventListener('keydown', (event) => {
  if (document.activeElement === $('key')) return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const onCard = document.activeElement && document.activeElement.classList.contains('card');
  const free = onCard || document.activeElement === document.body;
  if (event.key === 'p') setPaused(!paused);
  else if (event.key === 't') nextTheme();
  else if (event.key === 'Escape') choose(null);
  else if (free && (event.key === 'ArrowRight' || (onCard && event.key === 'ArrowDown'))) { move(1); event.preventDefault(); }
  else if (free && (event.key === 'ArrowLeft' || (onCard && event.key === 'ArrowUp'))) { move(-1); event.preventDefault(); }
});
$('newest').addEventListener('click', () => showSlowest(false));
$('slowest').addEventListener('click', () => showSlowest(true));
$('pause').addEventListener('click', () => setPaused(!paused));
$('theme').addEventListener('click', nextTheme);
window.addEventListener('resize', () => { placeWires(); drawWires(); showCharts(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColors(); showCharts(); drawWires(); });

let kept = 'auto';
try { kept = localStorage.getItem('pdjob-theme'); } catch (error) { /* Storage may be off. */ }
setTheme(THEMES.includes(kept) ? kept : 'auto');
tick();
