// Shows what /status, /links, /requests, /history and /explain of this address say. Read-only. Text from the job gets into the page as text only.
'use strict';

const INTERVAL_MS = 1000;
const TIMEOUT_MS = 5000;
const POINTS_MAX = 600;
const COMPACT_FROM = 60; // Processes; beyond, cards have one line less.
const LINED_MAX = 10; // Workers in a column; up to here, each card is in a line of its own, so that links pass none.

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
let lined = true;
let chartsEnd = new Date(); // When the last point of the charts was taken.
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
  setText(tile('t-wait', 'First token, p50 / p99'), percentiles());
  setText(tile('t-itl', 'Between tokens'), millis(now.itl));
  const bad = failures();
  setText(tile('t-failed', 'Failed requests'), bad + ' of ' + seen.size);
  setClass($('t-failed'), bad > 0 ? 'state-bad' : '');
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
    setText(card.state, stateText(process) + roleNow(process));
    setText(card.load, number(load.requests_running) + ' run, ' + number(load.requests_queued) + ' wait');
    card.load.hidden = compact || !serves(process) || process.role === 'store';
    card.meter.hidden = !serves(process) || number(load.kv_rows_max) === 0;
    const part = kvPart(load);
    if (card.meter.value !== part) card.meter.value = part;
    card.meter.setAttribute('aria-label', 'KV memory used');
    if (at === card.button) at = at.nextSibling;
    else column.insertBefore(card.button, at);
  }
  removeFrom(at);
}

function showTopology(processes) {
  const compact = processes.length > COMPACT_FROM;
  const columns = { router: [], prefill: [], decode: [] };
  for (const process of processes) columns[columnOf(process)].push(process);
  lined = Math.max(columns.prefill.length, columns.decode.length) <= LINED_MAX;
  setClass($('topology'), compact ? 'compact' : lined ? 'lined' : '');
  for (const [name, title] of [['router', 'Routers'], ['prefill', 'Prefill'], ['decode', 'Decode']]) {
    showColumn(name, title, columns[name], compact);
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
      for (const head of document.querySelectorAll('thead th')) {
        const cell = make('td');
        cell.dataset.label = head.textContent; // Narrow pages show it before the value.
        row.append(cell);
      }
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
  removeFrom(at);
  const names = new Set(processes.map((process) => process.name));
  for (const name of rows.keys()) if (!names.has(name)) rows.delete(name);
}

// Where the page is narrow, the links of KV are words.
const FLOWS_SHOWN_MAX = 12;
function showFlows() {
  const busiest = [...flows.values()].sort((a, b) => b.rate - a.rate || (a.from + a.to < b.from + b.to ? -1 : 1)).slice(0, FLOWS_SHOWN_MAX);
  const wanted = busiest.map((flow) => flow.from + ' → ' + flow.to + ': ' + (flow.rate > 0 ? bytes(flow.rate) + '/s' : flow.alive > 0 ? 'moves' : 'idle'));
  if (flows.size > busiest.length) wanted.push('and ' + (flows.size - busiest.length) + ' more');
  const list = $('flows');
  if (list.children.length === wanted.length && wanted.every((line, index) => list.children[index].textContent === line)) return;
  list.replaceChildren(...wanted.map((line) => make('li', '', line)));
}

function showNews(lines) {
  const news = $('news');
  const wanted = lines.split('\n').filter((line) => line !== '').reverse();
  if (news.children.length === wanted.length && wanted.every((line, index) => news.children[index].textContent === line)) return;
  news.replaceChildren(...wanted.map((line) => make('li', '', line)));
}

// Of the last minutes, by a router's clock or the metrics of an engine of another make.
function waits(load) {
  return PHASES.filter(([, field]) => number(load[field]) > 0).map(([name, field]) => name + ' ' + millis(load[field])).join(', ');
}

function showDetail() {
  const detail = $('detail');
  const process = status ? status.processes.find((each) => each.name === chosen) : undefined;
  detail.hidden = !process;
  if (!process) return;
  const load = process.load || {};
  const facts = [['Name', text(process.name) + roleNow(process)], ['Role', process.role], ['State', stateText(process)], ['For', duration(process.seconds_in_state)],
    ['Address', process.url], ['Process id', String(number(process.pid))], ['Node', process.node],
    ['Restarts', number(process.restarts) + ' (' + number(process.crashes) + ' after crashes, ' + number(process.hangs) + ' after hangs)'],
    ['Tokens queued', String(number(load.tokens_queued))], ['Mean waits', waits(load)],
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
  chartsEnd = new Date();
  const waits = status.processes.filter((process) => !serves(process)).length;
  document.title = text(status.job) + ': ' + text(status.state);
  setText($('job'), text(status.job));
  setText($('state'), text(status.state) + (waits > 0 ? ' · ' + waits + ' not serving' : ''));
  setClass($('state'), 'pill' + (status.state === 'unavailable' || waits > 0 && status.state === 'ready' ? ' bad' : status.state === 'ready' ? ' good' : ''));
  const models = status.models ? status.models.join(', ') : text(status.model);
  setText($('facts'), [models, text(status.url), status.processes.length + ' processes'].filter(Boolean).join(' · '));
  answeredRequests = newRequests;
  showRequests();
  showTiles(now);
  showTopology(status.processes);
  showFlows();
  showRows(status.processes);
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
