// Vercel's AI SDK. VARIANT: responses or chat of @ai-sdk/openai, or compatible for @ai-sdk/openai-compatible.

import assert from 'node:assert/strict';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Output, generateObject, generateText, hasToolCall, stepCountIs, streamObject, streamText, tool } from 'ai';
import { z } from 'zod';
import { Person, Time, Visit, Weather, base, closing, ending, model, opening, question, tokens, variant } from './shapes.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

// `more`: fields of the body that the SDK has no option for.
function ask(more = {}) {
  const fetchWith = (url, options) => fetch(url, { ...options, body: JSON.stringify({ ...JSON.parse(options.body), ...more }) });
  const given = { baseURL: base, apiKey: 'none', fetch: fetchWith };
  const compatible = () => createOpenAICompatible({ ...given, name: 'pdjob', supportsStructuredOutputs: true, includeUsage: true })(model);
  const openai = () => createOpenAI(given)[variant](model);
  return { model: variant === 'compatible' ? compatible() : openai(), prompt: question, temperature: 0, maxRetries: 0, maxOutputTokens: tokens };
}

// Otherwise the model would call on and on.
const oneCall = { parallel_tool_calls: false };
const ended = ['stop', 'length'];

function weatherAndTime() {
  return {
    get_weather: tool({ description: 'Gets the weather of a city.', inputSchema: Weather, execute: async () => ({ celsius: 14 }) }),
    get_time: tool({ description: 'Gets the time.', inputSchema: Time, strict: true, execute: async () => '12:00' }),
  };
}

// The first step calls a tool; the second one answers.
const twoSteps = {
  stopWhen: stepCountIs(2),
  prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'none' }),
};

function checkCalls(calls) {
  assert.ok(calls.length > 0);
  for (const call of calls) ({ get_weather: Weather, get_time: Time })[call.toolName].parse(call.input);
}

function checkSteps(steps) {
  assert.equal(steps.length, 2);
  assert.equal(steps[0].finishReason, 'tool-calls');
  checkCalls(steps[0].toolCalls);
  assert.equal(steps[0].toolResults.length, steps[0].toolCalls.length);
  assert.ok(steps[1].text && ended.includes(steps[1].finishReason));
}

// Reads a stream; errors come as parts of it.
async function partsOf(stream) {
  const parts = [];
  for await (const part of stream) {
    if (part.type === 'error') throw part.error;
    parts.push(part);
  }
  return parts;
}

export async function aTextHasAReasonAndUsage() {
  const told = await generateText({ ...ask(), maxOutputTokens: 16 });
  assert.ok(told.text && ended.includes(told.finishReason));
  assert.ok(told.usage.inputTokens > 0 && told.usage.outputTokens > 0);
}

export async function aStreamHasAReasonAndUsage() {
  const told = streamText({ ...ask(), maxOutputTokens: 16 });
  const parts = await partsOf(told.fullStream);
  assert.equal(parts.filter((part) => part.type === 'text-delta').map((part) => part.text).join(''), await told.text);
  assert.ok(ended.includes(await told.finishReason) && (await told.usage).outputTokens > 0);
}

export async function generateObjectGivesShapesOfZod() {
  for (const schema of [Person, Visit]) {
    const told = await generateObject({ ...ask(), schema });
    schema.parse(told.object);
    assert.ok(told.usage.outputTokens > 0);
  }
}

export async function generateObjectGivesATextWithABeginningAndAnEnd() {
  const schema = z.object({ file: z.string().startsWith('a').endsWith('.md').max(12) });
  schema.parse((await generateObject({ ...ask(), schema })).object);
}

export async function generateObjectGivesAListAndAChoice() {
  const list = await generateObject({ ...ask({ logit_bias: ending }), output: 'array', schema: Time });
  list.object.forEach((one) => Time.parse(one));
  const choice = await generateObject({ ...ask(), output: 'enum', enum: ['calm', 'merry'] });
  assert.ok(['calm', 'merry'].includes(choice.object));
}

export async function streamObjectGivesAShapeOfZod() {
  const told = streamObject({ ...ask(), schema: Person });
  const partial = await partsOf(told.partialObjectStream);
  assert.deepEqual(partial.at(-1), await told.object);
  Person.parse(await told.object);
}

export async function anObjectWithoutASchemaIsJson() {
  const told = await generateObject({ ...ask({ logit_bias: closing }), output: 'no-schema' });
  assert.equal(typeof told.object, 'object');
}

export async function anOutputOfGenerateTextMayComeWithTools() {
  const told = await generateText({ ...ask({ logit_bias: opening }), tools: weatherAndTime(), output: Output.object({ schema: Person }) });
  Person.parse(told.output);
}

async function converse(options) {
  const asked = { role: 'user', content: question };
  const first = await generateText({ ...ask(), ...options, prompt: undefined, messages: [asked], maxOutputTokens: 16 });
  const messages = [asked, ...first.response.messages, { role: 'user', content: 'And tomorrow?' }];
  const second = await generateText({ ...ask(), ...options, prompt: undefined, messages, maxOutputTokens: 16 });
  assert.ok(second.text && second.usage.inputTokens > first.usage.inputTokens);
}

export async function aConversationGoesOn() {
  await converse({});
}

export async function aConversationThatIsNotStoredGoesOn() {
  await converse({ providerOptions: { openai: { store: false } } });
}

export async function aToolsResultGoesBack() {
  checkSteps((await generateText({ ...ask(oneCall), ...twoSteps, tools: weatherAndTime() })).steps);
}

export async function aStreamGoesOnAfterATool() {
  const told = streamText({ ...ask(oneCall), ...twoSteps, tools: weatherAndTime() });
  const kinds = new Set((await partsOf(told.fullStream)).map((part) => part.type));
  for (const kind of ['tool-input-start', 'tool-input-delta', 'tool-call', 'tool-result', 'finish']) assert.ok(kinds.has(kind), kind);
  checkSteps(await told.steps);
  assert.ok((await told.totalUsage).outputTokens > 0);
}

export async function aNamedToolIsCalled() {
  const toolChoice = { type: 'tool', toolName: 'get_weather' };
  const told = await generateText({ ...ask(oneCall), tools: weatherAndTime(), toolChoice, stopWhen: hasToolCall('get_weather') });
  checkCalls(told.toolCalls);
  assert.ok(told.toolCalls.every((call) => call.toolName === 'get_weather'));
}
