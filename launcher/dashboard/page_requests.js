// Requests that have ended: bars, percentiles and failures.
'use strict';

// Requests that have ended do not change: a row is made once.
const PHASES = [['queue', 'queue_us', 'Queue'], ['prefill', 'prefill_us', 'Prefill'], ['kv', 'kv_us', 'KV'], ['decode', 'decode_us', 'Decode']];
const waitOf = (request) => number(request.queue_us) + number(request.prefill_us) + number(request.kv_us);
const timeOf = (request) => waitOf(request) + number(request.decode_us);
const REQUESTS_SHOWN_MAX = 40;
const SLOWEST_SHOWN_MAX = 16;
// What this page has seen end in the last ten minutes.
const SEEN_MAX = 2000;
const SEEN_SECONDS = 600;
const seen = new Map(); // Key -> {wait, failed, at}
const failed = (request) => request.outcome === 'worker_error' || request.outcome === 'refused';
function remember(requests) {
  let newest = 0;
  for (const [key, request] of requests) {
    if (!seen.has(key)) seen.set(key, { wait: waitOf(request), failed: failed(request), at: number(request.ended_at) });
    newest = Math.max(newest, number(request.ended_at));
  }
  for (const [key, request] of seen) {
    if (seen.size <= SEEN_MAX && request.at >= newest - SEEN_SECONDS) break; // In the order of their ends.
    seen.delete(key);
  }
}
function percentiles() {
  const waits = [...seen.values()].filter((each) => !each.failed).map((each) => each.wait).sort((a, b) => a - b);
  if (waits.length === 0) return '–';
  const at = (part) => waits[Math.min(waits.length - 1, Math.floor(part * waits.length))];
  const unit = timeUnit(at(0.99));
  return (at(0.5) / unit.us).toFixed(unit.digits) + ' / ' + timeIn(unit, at(0.99));
}
const failures = () => [...seen.values()].filter((each) => each.failed).length;

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
  const took = make('span');
  summary.append(make('span', fine ? '' : 'state-bad', fine ? '#' + number(request.number) : text(request.outcome).replace(/_/g, ' ')), bar, took);
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
  return { item, bar, took };
}
function showRequests() {
  const known = new Map(); // Routers that share a port may give the same answer.
  for (const router of answeredRequests.routers || []) {
    for (const request of router.requests || []) known.set(keyOf(request), request);
  }
  remember([...known].sort(([, a], [, b]) => number(a.ended_at) - number(b.ended_at)));
  const order = slowest ? (a, b) => waitOf(b) - waitOf(a) : (a, b) => number(b.ended_at) - number(a.ended_at) || number(b.number) - number(a.number);
  const shown = [...known.values()].sort(order).slice(0, slowest ? SLOWEST_SHOWN_MAX : REQUESTS_SHOWN_MAX);
  const longest = Math.max(...shown.map(timeOf), 1);
  const unit = timeUnit(longest);
  const list = $('requests');
  let at = list.firstChild;
  const keys = new Set();
  for (const request of shown) {
    const key = keyOf(request);
    keys.add(key);
    if (!requestRows.has(key)) requestRows.set(key, requestRow(request));
    const row = requestRows.get(key);
    setText(row.took, timeIn(unit, timeOf(request)));
    const width = Math.max(100 * timeOf(request) / longest, 1).toFixed(1) + '%';
    if (row.bar.style.width !== width) row.bar.style.width = width;
    if (at === row.item) at = at.nextSibling;
    else list.insertBefore(row.item, at);
  }
  removeFrom(at);
  for (const key of requestRows.keys()) if (!keys.has(key)) requestRows.delete(key);
  $('no-requests').hidden = shown.length > 0;
}
function showSlowest(on) {
  slowest = on;
  $('newest').setAttribute('aria-pressed', String(!on));
  $('slowest').setAttribute('aria-pressed', String(on));
  showRequests();
}
