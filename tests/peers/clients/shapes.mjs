// What the clients of Node ask for. Each text has a bound, because the model makes no sense and would fill any.

import { z } from 'zod';

export const base = `${process.argv[3]}/v1`;
export const variant = process.argv[4];
export const model = 'smollm2';
export const question = 'What is the weather like in Paris today?';
// More than any answer of these shapes needs.
export const tokens = 1000;
// Biases to the tokens }, ] and {. With }, JSON without a schema ends at once. With ], a list does. With {, an answer in JSON comes before any call
// of a tool.
export const closing = { 109: 100 };
export const ending = { 77: 100 };
export const opening = { 107: 100 };

export const Address = z.object({ street: z.string().max(12).describe('Without a number.'), number: z.int().min(1).max(999) });

// Nested shapes, references, a union with null, enums and numbers as zod writes them.
export const Person = z.object({
  name: z.string().max(12),
  age: z.number().int().positive().max(99),
  mood: z.enum(['calm', 'merry']),
  pet: z.union([z.literal('cat'), z.literal('dog')]),
  home: Address.nullable(),
  others: z.array(Address).min(1).max(2),
});

// Formats, a discriminated union, and a number.
export const Visit = z.object({
  visit: z.uuid(),
  day: z.iso.date(),
  fee: z.number().min(0).max(1000),
  who: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('guest'), name: z.string().max(8) }),
    z.object({ kind: z.literal('host'), since: z.iso.datetime() }),
  ]),
});

export const Weather = z.object({ city: z.string().max(16), days: z.int().min(1).max(7), unit: z.enum(['celsius', 'fahrenheit']) });

export const Time = z.object({ zone: z.enum(['UTC', 'CET']) });
