// OpenAI's client for Node.

import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { Person, Time, Visit, Weather, base, model, question, tokens } from './shapes.mjs';

const client = new OpenAI({ baseURL: base, apiKey: 'none', maxRetries: 0, timeout: 120_000 });
const messages = [{ role: 'user', content: question }];
const chat = { model, messages, temperature: 0 };
const response = { model, input: question, temperature: 0 };
const ended = ['stop', 'length'];

function tools(called = []) {
  const made = (name, parameters) =>
    zodFunction({ name, parameters, function: (given) => { called.push([name, parameters.parse(given)]); return '14 degrees'; } });
  return [made('get_weather', Weather), made('get_time', Time)];
}

const named = { type: 'function', function: { name: 'get_weather' } };

export async function aChatHasATextAReasonAndUsage() {
  const reply = await client.chat.completions.create({ ...chat, max_tokens: 8 });
  assert.ok(reply.choices[0].message.content && ended.includes(reply.choices[0].finish_reason));
  assert.ok(reply.usage.completion_tokens > 0);
}

export async function aStreamHasATextAReasonAndUsage() {
  const stream = client.chat.completions.stream({ ...chat, max_tokens: 8, stream_options: { include_usage: true } });
  let text = '';
  stream.on('content', (delta) => { text += delta; });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, text);
  assert.ok(text && ended.includes(final.choices[0].finish_reason) && (await stream.totalUsage()).completion_tokens > 0);
}

export async function parseReturnsShapesOfZod() {
  for (const [name, shape] of Object.entries({ Person, Visit })) {
    const reply = await client.chat.completions.parse({ ...chat, max_tokens: tokens, response_format: zodResponseFormat(shape, name) });
    shape.parse(reply.choices[0].message.parsed);
  }
}

export async function parseReturnsAMultiple() {
  const shape = z.object({ score: z.int().multipleOf(5) });
  const reply = await client.chat.completions.parse({ ...chat, max_tokens: tokens, response_format: zodResponseFormat(shape, 'score') });
  shape.parse(reply.choices[0].message.parsed);
}

export async function theStreamHelperParses() {
  const stream = client.chat.completions.stream({ ...chat, max_tokens: tokens, response_format: zodResponseFormat(Person, 'person') });
  Person.parse((await stream.finalChatCompletion()).choices[0].message.parsed);
}

export async function aToolIsCalledAndItsResultGoesBack() {
  const reply = await client.chat.completions.parse({ ...chat, tools: tools(), tool_choice: 'required', parallel_tool_calls: false, max_tokens: tokens });
  const { message, finish_reason: reason } = reply.choices[0];
  assert.equal(reason, 'tool_calls');
  for (const call of message.tool_calls) ({ get_weather: Weather, get_time: Time })[call.function.name].parse(call.function.parsed_arguments);
  const results = message.tool_calls.map((call) => ({ role: 'tool', tool_call_id: call.id, content: '14 degrees' }));
  const history = [...messages, message, ...results];
  const answer = await client.chat.completions.create({ ...chat, messages: history, tools: tools(), tool_choice: 'none', max_tokens: 8 });
  assert.ok(!answer.choices[0].message.tool_calls && ended.includes(answer.choices[0].finish_reason));
}

export async function runToolsRunsANamedTool() {
  const called = [];
  const runner = client.chat.completions.runTools({ ...chat, tools: tools(called), tool_choice: named, parallel_tool_calls: false, max_tokens: tokens });
  assert.equal(await runner.finalFunctionToolCallResult(), '14 degrees');
  assert.equal(called[0][0], 'get_weather');
}

export async function runToolsStreamsAndGoesOnWithTheResult() {
  const called = [];
  const most = { maxChatCompletions: 2 };
  const ask = { ...chat, tools: tools(called), tool_choice: 'required', parallel_tool_calls: false, stream: true, max_tokens: tokens };
  const runner = client.chat.completions.runTools(ask, most);
  for await (const _ of runner);
  assert.equal(called.length, 2);
  assert.deepEqual(runner.messages.map((message) => message.role), ['user', 'assistant', 'tool', 'assistant', 'tool']);
}

export async function aStreamedCallIsParsed() {
  const stream = client.chat.completions.stream({ ...chat, tools: tools(), tool_choice: named, parallel_tool_calls: false, max_tokens: tokens });
  const done = [];
  stream.on('tool_calls.function.arguments.done', (event) => done.push(event.name));
  const [call] = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
  Weather.parse(call.function.parsed_arguments);
  assert.deepEqual(done, ['get_weather']);
}

export async function aResponseHasATextAndUsage() {
  const told = await client.responses.create({ ...response, max_output_tokens: 16 });
  assert.ok(told.output_text && told.usage.output_tokens > 0);
}

export async function aResponseStreams() {
  let text = '';
  let last;
  for await (const event of await client.responses.create({ ...response, max_output_tokens: 16, stream: true })) {
    if (event.type === 'response.output_text.delta') text += event.delta;
    last = event;
  }
  assert.match(last.type, /^response\.(completed|incomplete)$/);
  assert.equal(last.response.output[0].content[0].text, text);
}

export async function aResponseParses() {
  const told = await client.responses.parse({ ...response, max_output_tokens: tokens, text: { format: zodTextFormat(Person, 'person') } });
  Person.parse(told.output_parsed);
  const stream = client.responses.stream({ ...response, max_output_tokens: tokens, text: { format: zodTextFormat(Visit, 'visit') } });
  Visit.parse((await stream.finalResponse()).output_parsed);
}

export async function aResponseCallsAFunctionAndGetsItsResult() {
  const given = [zodResponsesFunction({ name: 'get_weather', parameters: Weather })];
  const told = await client.responses.parse({ ...response, tools: given, tool_choice: 'required', parallel_tool_calls: false, max_output_tokens: tokens });
  const [call] = told.output;
  Weather.parse(call.parsed_arguments);
  const input = [...messages, ...told.output, { type: 'function_call_output', call_id: call.call_id, output: '14 degrees' }];
  const answer = await client.responses.create({ ...response, input, tools: given, tool_choice: 'none', max_output_tokens: 16 });
  assert.ok(answer.output_text);
}
