// Numbers, units and words of the page.
'use strict';

const $ = (id) => document.getElementById(id);
const make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};
// Writes only what differs, so that a page of 100 workers stays cheap.
const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };
// The element and those that follow it.
function removeFrom(element) {
  while (element) {
    const gone = element;
    element = element.nextSibling;
    gone.remove();
  }
}
const setClass = (element, name) => { if (element.className !== name) element.className = name; };

// ---- Numbers and words

const number = (value) => (typeof value === 'number' && isFinite(value) ? value : 0);
const text = (value) => (typeof value === 'string' ? value : '');
// Times that are compared with each other have one unit: that of the longest.
const timeUnit = (us) => (us >= 1e7 ? { name: 's', us: 1e6, digits: 1 } : us >= 1e5 ? { name: 'ms', us: 1e3, digits: 0 } : { name: 'ms', us: 1e3, digits: 1 });
const timeIn = (unit, us) => (us / unit.us).toFixed(unit.digits) + ' ' + unit.name;
const millis = (us) => (us === null ? '–' : timeIn(timeUnit(us), us));
const rounded = (value) => Math.round(10 * value) / 10;
const count = (value) => (value >= 1e6 ? rounded(value / 1e6) + ' M' : value >= 1e4 ? rounded(value / 1e3) + ' k' : String(rounded(value)));
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
const isWorker = (process) => ['prefill', 'decode', 'both'].includes(process.role);
const serves = (process) => process.state === 'ready' && !process.suspected;
function tone(process) {
  if (serves(process)) return 'state-ready';
  return ['starting', 'registered', 'draining', 'waiting'].includes(process.state) && !process.suspected ? 'state-mid' : 'state-bad';
}
const stateText = (process) => text(process.state) + (process.suspected ? ' (silent)' : '') + (process.starved ? ' (starved)' : '');
// A worker keeps its name when it changes its role.
function roleNow(process) {
  const named = /(?:^|-)(prefill|decode)-\d+$/.exec(text(process.name));
  return named && named[1] !== process.role && ['prefill', 'decode'].includes(process.role) ? ', now ' + process.role : '';
}
const kvPart = (load) => (number(load.kv_rows_max) > 0 ? number(load.kv_rows_used) / load.kv_rows_max : 0);
const columnOf = (process) => (isWorker(process) ? (process.role === 'prefill' ? 'prefill' : 'decode') : 'router');
