// Links between processes, and charts over time.
'use strict';

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
  if (!lined && chosen === null) return false; // They would cross cards; those of a chosen process do not matter to others.
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

const CHARTS = [['ttft', 'Time to first token', timeUnit], ['itl', 'Between tokens', timeUnit], ['queue', 'Requests queued', null],
  ['tokens', 'Tokens per second', null]];
const LEFT = 52, BOTTOM = 18, TOP = 10; // Pixels around the drawn part.
const JOINED_MAX = 30; // Seconds without a value that a thin line joins.
const OUTLIER = 2.5; // Points above so many times the 98th percentile leave the chart at its top, so that they do not flatten the rest.

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

// The value at the top of the axis: 1, 2, 2.5 or 5 times a power of ten.
function axisTop(values, most) {
  const sorted = [...values].sort((a, b) => a - b);
  const usual = sorted[Math.floor(0.98 * (sorted.length - 1))];
  const wanted = sorted.length >= 20 && usual > 0 && most > OUTLIER * usual ? 1.2 * usual : most;
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((top) => top >= wanted);
}

function drawAxes(pen, width, height, top, label, seconds) {
  pen.font = '11px system-ui, sans-serif';
  pen.fillStyle = colors.soft;
  pen.strokeStyle = colors.line;
  pen.lineWidth = 1;
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  for (const part of [0, 0.5, 1]) {
    const y = Math.round(height - BOTTOM - part * (height - BOTTOM - TOP)) + 0.5;
    pen.beginPath();
    pen.moveTo(LEFT, y);
    pen.lineTo(width, y);
    pen.stroke();
    if (top > 0 || part === 0) pen.fillText(label(part * top), LEFT - 6, y);
  }
  pen.textBaseline = 'alphabetic';
  for (const [part, align] of [[0, 'left'], [0.5, 'center'], [1, 'right']]) {
    const at = new Date(chartsEnd.getTime() - 1000 * seconds * (1 - part));
    pen.textAlign = align;
    pen.fillText(at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' }), LEFT + part * (width - LEFT), height - 4);
  }
}

function drawValues(pen, points, place, top) {
  const lines = [[], []]; // Whole, and thin: over seconds without a value.
  let last = null;
  points.forEach((value, index) => {
    if (value === null) return;
    const [x, y] = place(index, Math.min(value, top));
    const gap = last === null ? Infinity : index - last.index;
    if (gap <= JOINED_MAX) lines[gap === 1 ? 0 : 1].push([last.x, last.y, x, y]);
    if (gap > 1) pen.fillRect(x - 1, y - 1, 2.5, 2.5);
    if (value > top) {
      pen.beginPath();
      pen.moveTo(x - 4, y + 1);
      pen.lineTo(x + 4, y + 1);
      pen.lineTo(x, y - 6);
      pen.fill();
    }
    last = { index, x, y };
  });
  for (const [index, pieces] of lines.entries()) {
    pen.globalAlpha = index === 0 ? 1 : 0.45;
    pen.lineWidth = index === 0 ? 2 : 1;
    pen.beginPath();
    for (const [x1, y1, x2, y2] of pieces) { pen.moveTo(x1, y1); pen.lineTo(x2, y2); }
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function showCharts() {
  for (const [name, title, unitOf] of CHARTS) {
    const chart = chartOf(name, title);
    const points = series[name];
    const values = points.filter((value) => value !== null);
    const most = Math.max(...values, 0);
    const last = values.length > 0 ? values[values.length - 1] : null;
    const top = most > 0 ? axisTop(values, most) : 0;
    const unit = unitOf ? unitOf(most) : null;
    const shown = (value) => (unit ? timeIn(unit, value) : count(value));
    const words = last === null ? 'no data yet' : shown(last) + ', max ' + shown(most);
    setText(chart.querySelector('b'), words);
    const canvas = chart.querySelector('canvas');
    canvas.setAttribute('aria-label', title + ': ' + words);
    const pen = sized(canvas);
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    const seconds = Math.max(points.length, 60) - 1;
    drawAxes(pen, width, height, top, (value) => (unit ? rounded(value / unit.us) + ' ' + unit.name : count(value)), seconds);
    if (top === 0) continue;
    pen.strokeStyle = colors.prefill;
    pen.fillStyle = colors.prefill;
    const first = seconds + 1 - points.length; // New points come in at the right.
    drawValues(pen, points, (index, value) => [LEFT + (first + index) / seconds * (width - LEFT), height - BOTTOM - value / top * (height - BOTTOM - TOP)], top);
  }
}
