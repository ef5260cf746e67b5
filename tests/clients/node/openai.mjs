// The official OpenAI SDK for Node, with nothing changed but its base URL. Prints what it saw as one JSON document.
//
//   node openai.mjs BASE_URL        (CLIENT_MODULES names the folder that holds node_modules)

import { createRequire } from 'node:module';

const require = createRequire(`${process.env.CLIENT_MODULES}/package.json`);
const OpenAI = require('openai').default ?? require('openai');
const { VERSION } = require('openai/version');

const sdk = new OpenAI({ baseURL: process.argv[2], apiKey: 'sk-test', maxRetries: 0, timeout: 20_000 });
const messages = [{ role: 'user', content: 'how deep is the river today' }];
const ask = (options, headers = {}) =>
  sdk.chat.completions.create({ model: 'sim-model', messages, ...options }, { headers });
// What differs from one request to the next by nature.
const comparable = ({ id, created, ...rest }) => rest;

async function stream(options = {}, headers = {}) {
  const chunks = [];
  for await (const chunk of await ask({ stream: true, ...options }, headers)) chunks.push(comparable(chunk));
  return chunks;
}

async function aborted() {
  const running = await ask({ stream: true }, { 'x-sim': 'tokens=1000,itl_ms=5' });
  let seen = 0;
  for await (const chunk of running) {
    if (chunk.choices[0]?.delta.content && ++seen === 5) running.controller.abort();
  }
  return seen >= 5;
}

async function refused() {
  try {
    await ask({}, { 'x-sim': 'status=429' });
  } catch (error) {
    return { kind: error.constructor.name, status: error.status, retryAfter: error.headers.get('retry-after'), message: error.message };
  }
  return null;
}

async function broken(end) {
  let chunks = 0;
  try {
    for await (const _ of await ask({ stream: true }, { 'x-sim': `tokens=8,end=${end}` })) chunks += 1;
  } catch {
    return 'an error';
  }
  return `a clean end after ${chunks} chunks`;
}

const models = [];
for await (const model of await sdk.models.list()) models.push(comparable(model));
const seen = {
  models,
  whole: comparable(await ask({})),
  stream: await stream(),
  withUsage: await stream({ stream_options: { include_usage: true } }),
  reasoning: await stream({}, { 'x-sim': 'reasoning=4' }),
  twoChoices: await stream({ n: 2 }),
  refused: await refused(),
  aborted: await aborted(),
  reset: await broken('rst'),
  cut: await broken('fin'),
};
console.log(JSON.stringify({ version: VERSION, seen }));
